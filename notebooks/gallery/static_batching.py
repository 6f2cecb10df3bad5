"""Where a batch must wait for its longest answer, most of what the GPU computes is for nobody.

A static batch of up to 64 requests ends as a whole: rows whose answer is through go on through every matrix product.
With answers of 200 tokens on the mean and 2,000 at most {useful_share:.0%} of the rows computed give anyone a token.
Batching continuously, with the same 64 seats, everyone leaves when done and the next one sits down at once: the GPU
makes up to {throughput_of_continuous_over_static:.1f} times the tokens, and at 4 requests per second p95 of the whole
answer is {p95_e2el_continuous_s:.1f} s, not {p95_e2el_static_s:.0f} s. Were all answers equally long, static batches
would make {throughput_of_static_with_equal_answers:.0%} of the tokens.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from notebooks.gallery._runs import run, summary
from simserve.report.plots.style import BLUE, GREY, RED, plain_log_axis
from simserve.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (1, 2, 4, 8, 16, 32)
CONTINUOUS = ("engine.scheduler=vllm_v1", "engine.static_batching=null", "engine.async_scheduling=false")
ALL_AT_ONCE = ("workload.arrivals={process: all_at_once}",)
EQUAL = ("workload.output=200",)


def at_rate(rate: float, *overrides: str) -> Summary:
    """Numbers of a run at so many requests per second."""
    return summary("static_batching", f"workload.arrivals.rate={rate}", *overrides)


def useful_share(*overrides: str) -> float:
    """Share of the rows of decode steps that gave someone a token."""
    steps, requests = run("static_batching", *overrides).steps, run("static_batching", *overrides).requests
    return float((requests["output_len"] - 1).sum() / (steps["decodes"] * steps["steps"]).sum())


def throughput(*overrides: str) -> float:
    """Output tokens per second when all requests are there at once."""
    return float(summary("static_batching", *ALL_AT_ONCE, *overrides)["output_throughput"])


def full_batch() -> NDArray[np.int64]:
    """Output lengths of the first full batch, in ascending order."""
    requests = run("static_batching", *ALL_AT_ONCE).requests
    first: NDArray[np.int64] = requests["output_len"][requests["last_step"] == requests["last_step"].min()]
    return np.sort(first)


def measure() -> dict[str, Any]:
    """Useful share, throughput, and p95 of the whole answer over the load."""
    static, continuous = ([at_rate(rate, *how) for rate in RATES] for how in ((), CONTINUOUS))
    at_four = RATES.index(4)
    latencies = [[run["p95_e2el_ms"] / 1e3 for run in runs] for runs in (static, continuous)]
    return {
        "useful_share": useful_share(*ALL_AT_ONCE),
        "useful_share_of_continuous": useful_share(*ALL_AT_ONCE, *CONTINUOUS),
        "throughput_of_continuous_over_static": throughput(*CONTINUOUS) / throughput(),
        "throughput_of_static_with_equal_answers": throughput(*EQUAL) / throughput(*EQUAL, *CONTINUOUS),
        "p95_e2el_static_s": latencies[0][at_four],
        "p95_e2el_continuous_s": latencies[1][at_four],
        "p95_e2el_s_of_static": latencies[0],
        "p95_e2el_s_of_continuous": latencies[1],
        "lengths": full_batch().tolist(),
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """The rows of one batch, and what its end costs everyone."""
    left, right = figure.subplots(1, 2)
    lengths = np.array(measured["lengths"])
    rows = np.arange(lengths.size)
    left.barh(rows, lengths, height=1, color=BLUE)
    left.barh(rows, lengths.max() - lengths, height=1, left=lengths, color=GREY)
    left.text(0.5 * lengths.max(), 0.3 * rows.size, "through, and computed on", ha="center", size=8)
    left.text(0.03 * lengths.max(), 1.01 * rows.size, "tokens that somebody gets", color=BLUE, size=8)
    left.set(title="One batch", xlabel="steps", ylabel="row", ylim=(-0.5, 1.1 * rows.size))
    left.grid(visible=False)
    for name, colour, place in (("static", RED, 1), ("continuous", BLUE, 3)):
        latency = measured[f"p95_e2el_s_of_{name}"]
        right.plot(RATES, latency, ".-", color=colour)
        right.annotate(name, (RATES[place], latency[place]), (0, 6), textcoords="offset points", color=colour,
                       ha="right")  # fmt: skip
    right.set(title="p95 of the whole answer", xlabel="requests/s", ylabel="s", xscale="log", yscale="log")
    right.set_xticks(RATES, [str(rate) for rate in RATES])
    right.minorticks_off()
    plain_log_axis(right.yaxis)
