"""With prompts and answers on GPUs of their own, a prompt of 32,000 tokens makes no answer pause: what it costs others
moves to their first token.

Two GPUs serve the same chats. As two replicas with chunks of 1,024 tokens, the long prompt makes answers beside it
pause for {gap_of_chunks_ms:.0f} ms. As one prefill and one decode replica they never pause for more than
{gap_of_pools_ms:.1f} ms, a decode step of the whole crowd. The KV of the long prompt, {sent_gb:.1f} GB, crosses a
network card of 50 GB/s in {transfer_ms:.0f} ms. What is sent shows in the second token alone: in the median it comes
{median_first_gap_of_pools_ms:.0f} ms after the first, at worst {first_gap_of_pools_ms:.0f} ms.

The price is paid before: only one GPU computes prompts, so that the p95 of the chats' time to first token is
{ttft_of_pools_ms:.0f} ms, not {ttft_of_chunks_ms:.0f} ms. Over a card of 5 GB/s the long prompt's KV takes
{transfer_over_a_slow_link_ms:,.0f} ms, and second tokens beside it up to {first_gap_over_a_slow_link_ms:.0f} ms.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from notebooks.gallery._runs import run, summary
from simserve.report.plots.style import BLUE, CYAN, RED, plain_log_axis
from simserve.report.tokens import as_ticks, step_clocks
from simserve.spec.result import Result
from simserve.spec.ticks import TICKS_PER_SECOND

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

CHUNKS = (
    *("cluster.pools=null", "cluster.kv_link=null", "cluster.replicas=2"),
    *("engine.enable_chunked_prefill=true", "engine.max_num_batched_tokens=1024"),
)
SLOW_LINK = ("cluster.kv_link.bandwidth=5 GB/s",)
CHAT, DOCUMENT = 0, 1


def gaps_ms(result: Result) -> tuple[Floats, Floats]:
    """Of each chat: the gap between the first and the second token, and the longest gap after that."""
    clocks, requests = step_clocks(result.steps), result.requests
    of_pools = "prefill_replica" in requests
    chats = np.flatnonzero((requests["class_index"] == CHAT) & (requests["output_len"] > 2))
    second = {int(row): int(step) for row, step in zip(result.gaps["request"], result.gaps["step_after"], strict=True)}
    first_gaps, later_gaps = [], []
    for row in chats.tolist():
        clock, first = clocks[int(requests["replica"][row])], int(requests["first_step"][row])
        begin = second[row] if of_pools else first
        times = clock.between(begin, int(requests["last_step"][row]) + 1)
        if of_pools:
            token = clocks[int(requests["prefill_replica"][row])].at(np.array([first]))
            times = np.concatenate([token, times])
        gaps = np.diff(times) / TICKS_PER_SECOND * 1e3
        first_gaps.append(gaps[0])
        later_gaps.append(gaps[1:].max())
    return np.array(first_gaps), np.array(later_gaps)


def decode_steps(result: Result) -> tuple[Floats, Floats]:
    """When decodes beside the first long prompt get tokens (seconds since it came), how long after the last (ms)."""
    requests, steps = result.requests, result.steps
    documents = np.flatnonzero(requests["class_index"] == DOCUMENT)
    row = documents[np.argmin(requests["arrival"][documents])]
    here = (steps["replica"] == requests["replica"][row]) & (steps["decodes"] > 0)
    times = as_ticks(steps["first_token_time"][here]) / TICKS_PER_SECOND
    return times[1:] - requests["engine_arrival"][row], 1e3 * np.diff(times)


def longest_transfer_ms(*overrides: str) -> float:
    """How long the KV of a long prompt is under way."""
    requests = run("disaggregation", *overrides).requests
    return float(1e3 * np.nanmax(requests["kv_transfer_end"] - requests["kv_transfer_start"]))


def p95_ttft_ms(*overrides: str) -> float:
    """Time to first token of the chats."""
    return float(summary("disaggregation", *overrides)["classes"]["chat"]["p95_ttft_ms"])


def measure() -> dict[str, Any]:
    """Gaps and first tokens of the chats, with and without pools."""
    first_of_chunks, later_of_chunks = gaps_ms(run("disaggregation", *CHUNKS))
    first_of_pools, later_of_pools = gaps_ms(run("disaggregation"))
    first_over_slow, _ = gaps_ms(run("disaggregation", *SLOW_LINK))
    return {
        "gap_of_chunks_ms": float(max(first_of_chunks.max(), later_of_chunks.max())),
        "gap_of_pools_ms": float(later_of_pools.max()),
        "first_gap_of_pools_ms": float(first_of_pools.max()),
        "median_first_gap_of_pools_ms": float(np.median(first_of_pools)),
        "first_gap_over_a_slow_link_ms": float(first_over_slow.max()),
        "transfer_ms": longest_transfer_ms(),
        "transfer_over_a_slow_link_ms": longest_transfer_ms(*SLOW_LINK),
        "sent_gb": float(run("disaggregation").requests["kv_transfer_bytes"].max()) / 1e9,
        "ttft_of_chunks_ms": p95_ttft_ms(*CHUNKS),
        "ttft_of_pools_ms": p95_ttft_ms(),
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """The gaps that answers see as the long prompt passes, and what each way costs."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for name, colour, overrides in (("two replicas, chunks of 1,024", RED, CHUNKS), ("decode pool", BLUE, ())):
        times, gaps = decode_steps(run("disaggregation", "run.resolution=steps", *overrides))
        seen = (times > -0.5) & (times < 1.8)
        left.plot(times[seen], gaps[seen], ".", color=colour, markersize=2.5, label=name)
    left.set(title="A long prompt passes", xlabel="seconds since it came", ylabel="time since the last token, ms")
    left.set_yscale("log")
    left.set_ylim(4, 100)
    plain_log_axis(left.yaxis)
    left.legend(loc="upper right", fontsize=7, frameon=False, markerscale=3)
    bars = [
        ("longest gap,\nchunks", measured["gap_of_chunks_ms"], RED),
        ("longest gap,\npools", measured["gap_of_pools_ms"], BLUE),
        ("longest first gap,\npools", measured["first_gap_of_pools_ms"], CYAN),
        ("p95 TTFT,\nchunks", measured["ttft_of_chunks_ms"], RED),
        ("p95 TTFT,\npools", measured["ttft_of_pools_ms"], BLUE),
    ]
    rows = np.arange(len(bars))
    right.barh(rows, [value for _, value, _ in bars], height=0.6, color=[colour for _, _, colour in bars])
    for row, (_, value, _) in zip(rows, bars, strict=True):
        right.annotate(f"{value:,.0f}", (value, row), (3, 0), textcoords="offset points", va="center", size=7)
    right.set_yticks(rows, [name for name, _, _ in bars])
    right.set(title="What chats feel", xlabel="ms", xlim=(0, 1.2 * max(value for _, value, _ in bars)))
    right.grid(visible=False, axis="y")
    right.invert_yaxis()
