"""One prompt of 32,000 tokens stops everybody's answers for more than a second, unless it comes in chunks.

Computed whole, the prompt takes one step of {gap_whole_ms:,.0f} ms, and nobody gets a token before it ends. In chunks
of 1,024 tokens, which vLLM mixes with decodes, the longest pause is {gap_of_chunks_ms:.0f} ms. The reader of the long
prompt pays: its first token comes after {ttft_of_chunks_ms:,.0f} ms, not {ttft_whole_ms:,.0f} ms, with chunks of 512
after {ttft_of_small_chunks_ms:,.0f} ms, since small chunks fill the GPU less and read the prompt's KV more often.

Where prompts go first (SGLang's default, and vLLM's before its V1 engine) chunks do not help the others: decodes wait
for all of them and for the prompts that come meanwhile, up to {gap_prefill_first_ms:,.0f} ms.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from notebooks.gallery._runs import run, summary
from simserve.report.itl import pooled_gaps
from simserve.report.plots.style import BLUE, CYAN, GREEN, RED, YELLOW, plain_log_axis
from simserve.spec.ticks import to_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Way(NamedTuple):
    """How prompts are served."""

    name: str
    colour: str
    overrides: tuple[str, ...]


def in_chunks(tokens: int) -> tuple[str, ...]:
    """Overrides for steps of so many tokens at most."""
    return ("engine.enable_chunked_prefill=true", f"engine.max_num_batched_tokens={tokens}")


WHOLE = Way("whole", RED, ())
CHUNKS = Way("chunks of 1,024", BLUE, in_chunks(1024))
SMALL_CHUNKS = Way("chunks of 512", GREEN, in_chunks(512))
PREFILL_FIRST = Way("prefill first,\nchunks of 1,024", YELLOW, ("engine.scheduler=prefill_first", *in_chunks(1024)))
WAYS = (WHOLE, Way("chunks of 8,192", CYAN, in_chunks(8192)), CHUNKS, SMALL_CHUNKS, PREFILL_FIRST)
SHOWN = (WHOLE, PREFILL_FIRST, CHUNKS)


def longest_gap_ms(way: Way) -> float:
    """The longest that a chat waits for its next token."""
    result = run("long_prompt", *way.overrides)
    chats = result.requests["class_index"] == 0
    return 1e3 * float(to_seconds(np.array(max(gaps.max(initial=0) for gaps, _ in pooled_gaps(result, chats)))))


def ttft_ms(way: Way) -> float:
    """Mean time to the first token of a long prompt."""
    return float(summary("long_prompt", *way.overrides)["classes"]["document"]["mean_ttft_ms"])


def tokens_of_decodes(way: Way) -> NDArray[np.float64]:
    """When decodes get tokens: seconds since the first long prompt reached the engine."""
    result = run("long_prompt", "run.resolution=steps", *way.overrides)
    begin = result.requests["engine_arrival"][result.requests["class_index"] == 1].min()
    ends: NDArray[np.float64] = to_seconds(result.steps["first_token_time"][result.steps["decodes"] > 0])
    return ends - begin


def measure() -> dict[str, Any]:
    """The longest gap of chats, and the first token of the long prompts."""
    gaps = {way: longest_gap_ms(way) for way in WAYS}
    waits = {way: ttft_ms(way) for way in WAYS}
    return {
        "gap_whole_ms": gaps[WHOLE],
        "gap_of_chunks_ms": gaps[CHUNKS],
        "gap_of_small_chunks_ms": gaps[SMALL_CHUNKS],
        "gap_prefill_first_ms": gaps[PREFILL_FIRST],
        "ttft_whole_ms": waits[WHOLE],
        "ttft_of_chunks_ms": waits[CHUNKS],
        "ttft_of_small_chunks_ms": waits[SMALL_CHUNKS],
        "ttft_prefill_first_ms": waits[PREFILL_FIRST],
        "gaps_ms": list(gaps.values()),
        "ttfts_ms": list(waits.values()),
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """The gaps that everybody sees as one long prompt passes, and what each way costs whom."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for way in SHOWN:
        times = tokens_of_decodes(way)
        seen = (times[1:] > -0.5) & (times[1:] < 1.8)
        left.plot(times[1:][seen], 1e3 * np.diff(times)[seen], ".-", color=way.colour, markersize=3, linewidth=0.7)
        longest = np.flatnonzero(seen)[np.argmax(np.diff(times)[seen])]
        place = (times[1 + longest], 1e3 * np.diff(times)[longest])
        shift, side = {WHOLE: ((-8, -14), "right"), PREFILL_FIRST: ((-6, 4), "right"), CHUNKS: ((5, 5), "left")}[way]
        name = way.name.replace("\n", " ")
        left.annotate(name, place, shift, textcoords="offset points", size=7, color=way.colour, ha=side)
    left.set(title="A long prompt passes", xlabel="seconds since it came", ylabel="time since the last token, ms")
    left.set_yscale("log")
    plain_log_axis(left.yaxis)
    rows = np.arange(len(WAYS))
    right.barh(rows - 0.2, measured["gaps_ms"], height=0.38, color=[way.colour for way in WAYS])
    right.barh(rows + 0.2, measured["ttfts_ms"], height=0.38, color=[way.colour for way in WAYS], alpha=0.35)
    for row, gap, wait in zip(rows, measured["gaps_ms"], measured["ttfts_ms"], strict=True):
        for offset, value in ((-0.2, gap), (0.2, wait)):
            place = (value, row + offset)
            right.annotate(f"{value:,.0f}", place, (3, 0), textcoords="offset points", va="center", size=7)
    right.set_yticks(rows, [way.name for way in WAYS])
    right.set(title="Longest gap; TTFT (pale)", xlabel="ms", xlim=(0, 1.3 * max(measured["ttfts_ms"])))
    right.grid(visible=False, axis="y")
    right.invert_yaxis()
