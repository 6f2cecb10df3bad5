"""Work of low priority makes ten times as many tokens on one GPU, and interactive users keep their objective.

Three interactive requests a second leave a GPU nearly idle: {tokens_per_s_alone:,.0f} output tokens/s, first tokens
after {p95_ttft_alone_ms:.0f} ms at the 95th percentile. Add batch requests, nine a second and more than it can do: it
makes {tokens_per_s:,.0f} tokens/s, {throughput_factor:.1f} times as many. First come, first served, interactive users
pay with {p95_ttft_fcfs_ms:,.0f} ms. With priorities (`scheduling_policy: priority`) they pass the queue, and wait for
the next free seat: {p95_ttft_priority_ms:,.0f} ms, within an objective of 500 ms. What they share is the step: 128
sequences in it slow their tokens from {p95_tpot_alone_ms:.1f} to {p95_tpot_priority_ms:.1f} ms each.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import run, summary
from simserve.report.plots.style import BLUE, FAINT, GREEN, RED, plain_log_axis
from simserve.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INTERACTIVE = 3.0
FCFS = "engine.scheduling_policy=fcfs"
BATCH_RATES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 18)


def tiers(batch_rate: float, *overrides: str) -> Summary:
    """Numbers of a run with so many batch requests a second beside the interactive ones."""
    share = INTERACTIVE / (INTERACTIVE + batch_rate)
    return summary(
        "batch_tier",
        f"workload.arrivals.rate={INTERACTIVE + batch_rate}",
        f"workload.classes.0.share={share}",
        f"workload.classes.1.share={1 - share}",
        *overrides,
    )


def alone() -> Summary:
    """Numbers of a run without batch requests."""
    (interactive,) = run("batch_tier").scenario.workload.classes[:1]
    only = f"{{name: interactive, share: 1, input: 500, output: 150, slo: {{ttft: {interactive.slo.ttft} s}}}}"
    return summary("batch_tier", f"workload.classes=[{only}]", f"workload.arrivals.rate={INTERACTIVE}")


def measure() -> dict[str, Any]:
    """Waits of interactive users and tokens of all, by batch load and policy."""
    nobody, priority, fcfs = alone(), tiers(9), tiers(9, FCFS)
    by_priority, first_come = ([tiers(rate, *more) for rate in BATCH_RATES] for more in ((), (FCFS,)))
    first, last = priority["classes"]["interactive"], fcfs["classes"]["interactive"]
    return {
        "tokens_per_s_alone": nobody["output_throughput"],
        "tokens_per_s": priority["output_throughput"],
        "throughput_factor": priority["output_throughput"] / nobody["output_throughput"],
        "p95_ttft_alone_ms": nobody["p95_ttft_ms"],
        "p95_ttft_priority_ms": first["p95_ttft_ms"],
        "p95_ttft_fcfs_ms": last["p95_ttft_ms"],
        "p95_tpot_alone_ms": nobody["p95_tpot_ms"],
        "p95_tpot_priority_ms": first["p95_tpot_ms"],
        "objective_met_with_priority": float(priority["slo_met"]),
        "objective_met_fcfs": float(fcfs["slo_met"]),
        "tokens_by_rate": [nobody["output_throughput"], *(run["output_throughput"] for run in by_priority)],
        "ttft_by_rate_priority": [run["classes"]["interactive"]["p95_ttft_ms"] for run in by_priority],
        "ttft_by_rate_fcfs": [run["classes"]["interactive"]["p95_ttft_ms"] for run in first_come],
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """What batch requests add, and what interactive users pay for it."""
    left, right = figure.subplots(1, 2)
    left.plot((0, *BATCH_RATES), measured["tokens_by_rate"], color=BLUE, marker="o", markersize=3)
    left.set(title="Output tokens/s of all", ylim=(0, None))
    for name, colour, label in (("fcfs", RED, "first come, first served"), ("priority", GREEN, "priority")):
        right.semilogy(
            BATCH_RATES, measured[f"ttft_by_rate_{name}"], color=colour, marker="o", markersize=3, label=label
        )
    right.axhline(measured["p95_ttft_alone_ms"], color=FAINT, linewidth=1, linestyle=":")
    right.text(18, measured["p95_ttft_alone_ms"] * 0.85, "alone", size=8, color=FAINT, ha="right", va="top")
    right.axhline(500, color=FAINT, linewidth=1)
    right.text(1, 540, "objective", size=8, color=FAINT)
    right.set(title="p95 TTFT of interactive users, ms", ylim=(15, 100_000))
    plain_log_axis(right.yaxis)
    right.legend(loc="upper left")
    for axes in (left, right):
        axes.set(xlabel="batch requests/s, beside 3 interactive ones")
