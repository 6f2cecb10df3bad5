"""One simulation under one load, judged: whether the fleet holds it, and which condition is the tightest.

A run *holds* a load when it meets every objective of the scenario and keeps up with the arrivals (`saturation` is
stable). Without the second condition a short run of a hopeless load may still look well, and an objective on `tpot`
alone would never fail.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simserve.simulation import simulate
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario

SUSTAINED = "sustained load"
"""The condition that the fleet keeps up, where it is the one that fails."""


@dataclass(frozen=True, slots=True)
class Tightest:
    """The condition that is nearest to failing or failed most: a latency in milliseconds against its limit at the
    percentile of the objective, or `sustained load`, which has no numbers. `value_ms` is None beyond all measure."""

    condition: str
    percentile: float | None = None
    limit_ms: float | None = None
    value_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A run and its verdict."""

    holds: bool
    tightest: Tightest
    summary: Mapping[str, Any]
    result: Result


def attempt(scenario: Scenario) -> Trial:
    """Simulate and judge."""
    from simserve.report.summary import summarize

    result = simulate(scenario)
    summary = summarize(result)
    keeps_up = summary["saturation"] == "stable"
    met = bool(summary["slo_met"])
    tightest = tightest_limit(summary["slo"]) if keeps_up or not met else Tightest(SUSTAINED)
    return Trial(keeps_up and met, tightest, summary, result)


def tightest_limit(objectives: list[dict[str, Any]]) -> Tightest:
    """The limit whose value is the largest multiple of it, over all objectives of a summary."""

    def strain(limit: Tightest) -> float:
        assert limit.limit_ms is not None
        return float("inf") if limit.value_ms is None else limit.value_ms / limit.limit_ms

    limits = [
        Tightest(latency, objective["percentile"], limit["limit_ms"], limit["value_ms"])
        for objective in objectives
        for latency, limit in objective["limits"].items()
        if limit["value_ms"] is not None or not limit["met"]
    ]
    return max(limits, key=strain, default=Tightest(SUSTAINED))


def describe(tightest: Tightest) -> str:
    """The condition in words, e.g. `p95 ttft 512 ms against 500 ms`."""
    if tightest.limit_ms is None:
        return "the queue grows: arrivals outrun completions"
    value = "without bound" if tightest.value_ms is None else f"{tightest.value_ms:.4g} ms"
    return f"p{tightest.percentile:g} {tightest.condition} {value} against {tightest.limit_ms:.4g} ms"
