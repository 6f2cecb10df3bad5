"""Without a KV cache every token computes its whole text again, so that twice the answer is four times the work; with
one it is twice.

A thousand tokens of answer take {tokens_without_1000:,.0f} tokens through the model for each request in place of
{tokens_with_1000:,.0f}. From 500 to 1,000 tokens the work grows {work_ratio_without:.1f} times without keys and values
kept, and {work_ratio_with:.1f} times with them; the time of 32 requests at once {time_ratio_without:.1f} and
{time_ratio_with:.1f} times, to {seconds_without_1000:.0f} s and {seconds_with_1000:.1f} s. The price of the cache is
memory: {kv_gb_of_32_texts:.1f} GB for these 32 texts at their ends.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import run, summary
from simserve.report.plots.style import BLUE, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANSWERS = (125, 250, 500, 1000)
USERS = 32
KEPT = ("engine.kv_allocation=paged", "engine.enable_prefix_caching=false", "engine.async_scheduling=false")
KINDS = {"without": (), "with": KEPT}


def tokens(kind: str, answer: int) -> float:
    """Tokens that go through the model for each request."""
    steps = run("without_kv", *KINDS[kind], f"workload.output={answer}").steps
    return float((steps["prefill_tokens"] + steps["decodes"] * steps["steps"]).sum()) / USERS


def seconds(kind: str, answer: int) -> float:
    """Until the last of all requests, which come at once, has its answer."""
    return float(summary("without_kv", *KINDS[kind], f"workload.output={answer}")["simulated_time"])


def measure() -> dict[str, Any]:
    """Work and time over the length of the answer, without keys and values kept and with them."""
    work = {kind: [tokens(kind, answer) for answer in ANSWERS] for kind in KINDS}
    times = {kind: [seconds(kind, answer) for answer in ANSWERS] for kind in KINDS}
    memory = run("without_kv", *KEPT).memory
    bytes_per_token = float(memory["kv"]) / float(memory["kv_tokens"])
    measured: dict[str, Any] = {"kv_gb_of_32_texts": USERS * (10 + ANSWERS[-1]) * bytes_per_token / 1e9}
    for kind in KINDS:
        measured |= {
            f"tokens_{kind}_1000": work[kind][-1],
            f"seconds_{kind}_1000": times[kind][-1],
            f"work_ratio_{kind}": work[kind][-1] / work[kind][-2],
            f"time_ratio_{kind}": times[kind][-1] / times[kind][-2],
            f"work_{kind}": work[kind],
            f"times_{kind}": times[kind],
        }
    return measured


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Work and time over the length of the answer."""
    left, right = figure.subplots(1, 2)
    for kind, colour in (("without", RED), ("with", BLUE)):
        label = f"{kind} a KV cache"
        left.plot(ANSWERS, measured[f"work_{kind}"], color=colour, marker="o", markersize=3, label=label)
        right.plot(ANSWERS, measured[f"times_{kind}"], color=colour, marker="o", markersize=3, label=label)
    left.set(title="Work of a request", ylabel="tokens through the model")
    right.set(title="Time of 32 requests at once", ylabel="seconds")
    for axes in (left, right):
        axes.set(xlabel="tokens of the answer", xlim=(0, None), ylim=(0, None))
    left.yaxis.set_major_formatter("{x:,.0f}")
    left.legend()
    right.legend()
