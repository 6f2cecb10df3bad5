"""Up to nine tenths of what a GPU can do latencies rise gently; past it nothing more comes out, and all wait.

At one request a second a first token takes {p95_ttft_of_1_ms:.0f} ms at the 95th percentile, and each further one
{p95_tpot_of_1_ms:.1f} ms. At 45 a second, {load_of_45:.0%} of the {capacity:.0f} that the GPU can do, it is
{p95_ttft_of_45_ms:.0f} and {p95_tpot_of_45_ms:.1f} ms: the batch has grown, and hardly anybody queues. Past that, more
requests bring no more answers, and first tokens take {p95_ttft_of_60_ms:,.0f} ms at 60 a second and
{p95_ttft_of_100_ms:,.0f} ms at 100, or longer, if the load lasts longer than these 90 s. What counts is
goodput, answers within the objective of 500 and 50 ms: {goodput_of_45:.0f} a second at 45, {goodput_of_60:.0f} at 60
and {goodput_of_100:.0f} at 100.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import run, summary
from simserve.report.metrics import tpot, ttft
from simserve.report.plots.style import BLUE, FAINT, GREEN, RED, plain_log_axis
from simserve.spec.result import COMPLETED, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 48, 50, 52, 55, 60, 70, 80, 100)


def answers_per_s(result: Result) -> tuple[float, float]:
    """Answers a second, and those within the objective, while requests come: the first third is left out, for the
    batch to build up."""
    requests, objective = result.requests, result.scenario.slo
    assert objective is not None
    first, last = requests["arrival"].min(), requests["arrival"].max()
    start = first + (last - first) / 3
    done = (requests["status"] == COMPLETED) & (requests["finish"] > start) & (requests["finish"] <= last)
    good = done & (ttft(requests) <= objective.ttft) & (tpot(requests) <= objective.tpot)
    return float(done.sum() / (last - start)), float(good.sum() / (last - start))


def measure() -> dict[str, Any]:
    """Latencies, answers and good answers, over the rate of requests."""
    overrides = {rate: (f"workload.arrivals.rate={rate}", "workload.duration=90 s") for rate in RATES}
    runs = {rate: summary("load_curve", *override) for rate, override in overrides.items()}
    out = {rate: answers_per_s(run("load_curve", *override)) for rate, override in overrides.items()}
    capacity = max(answers for answers, _ in out.values())
    return {
        "capacity": capacity,
        "load_of_45": 45 / capacity,
        "p95_ttft_of_1_ms": runs[1]["p95_ttft_ms"],
        "p95_ttft_of_45_ms": runs[45]["p95_ttft_ms"],
        "p95_ttft_of_60_ms": runs[60]["p95_ttft_ms"],
        "p95_ttft_of_100_ms": runs[100]["p95_ttft_ms"],
        "p95_tpot_of_1_ms": runs[1]["p95_tpot_ms"],
        "p95_tpot_of_45_ms": runs[45]["p95_tpot_ms"],
        "goodput_of_45": out[45][1],
        "goodput_of_60": out[60][1],
        "goodput_of_100": out[100][1],
        "answers_of_60": out[60][0],
        "answers_of_100": out[100][0],
        "answers_per_s": [answers for answers, _ in out.values()],
        "goodput": [good for _, good in out.values()],
        "p50_ttft_ms": [run["median_ttft_ms"] for run in runs.values()],
        "p95_ttft_ms": [run["p95_ttft_ms"] for run in runs.values()],
        "p95_tpot_ms": [run["p95_tpot_ms"] for run in runs.values()],
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """What comes out and how long it takes, over what comes in."""
    left, right = figure.subplots(1, 2)
    left.plot((0, 100), (0, 100), color=FAINT, linestyle=":", linewidth=1)
    left.plot(RATES, measured["answers_per_s"], color=BLUE, marker="o", markersize=3, label="answers")
    left.plot(RATES, measured["goodput"], color=GREEN, marker="o", markersize=3, label="within the objective")
    left.set(title="Out, requests/s", ylim=(0, 75), xlim=(0, 102))
    left.legend(loc="upper left")
    for name, label, colour in (
        ("p95_ttft_ms", "p95 TTFT", RED),
        ("p50_ttft_ms", "p50 TTFT", BLUE),
        ("p95_tpot_ms", "p95 TPOT", GREEN),
    ):
        right.semilogy(RATES, measured[name], color=colour, marker="o", markersize=3, label=label)
    right.set(title="Latency, ms", xlim=(0, 102))
    plain_log_axis(right.yaxis)
    right.legend(loc="upper left")
    for axes in (left, right):
        axes.axvline(measured["capacity"], color=FAINT, linewidth=0.8)
        axes.set(xlabel="in, requests/s")
