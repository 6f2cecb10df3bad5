"""Whether the objective was met: goodput, attainment, and each limit against the percentile it is set for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simserve.report.itl import gap_statistics
from simserve.report.metrics import LATENCIES, FloatArray, completed
from simserve.report.question import objective_of
from simserve.report.statistics import Rank
from simserve.report.tokens import BoolArray
from simserve.report.window import Window
from simserve.spec.result import Result
from simserve.spec.slo import SloSpec

PER_REQUEST = ("ttft", "tpot", "e2el")
"""Limits that one request keeps or breaks; a limit on `itl` is one on the pooled gaps of all requests."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on one latency, the value at the objective's percentile (None: none, or beyond all measure) and whether
    the limit was kept."""

    latency: str
    limit: float
    value: float | None
    met: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one objective."""

    classes: tuple[str, ...]
    """Request classes it is for."""
    percentile: float
    limits: tuple[Limit, ...]
    good: int
    """Requests that were completed within all limits."""
    requests: int

    @property
    def met(self) -> bool:
        """Whether every limit was kept at the percentile."""
        return all(limit.met for limit in self.limits)

    @property
    def attainment(self) -> float | None:
        """Share of the requests that were good."""
        return self.good / self.requests if self.requests else None


def judge(result: Result, window: Window) -> list[Verdict]:
    """The verdict on each objective, the scenario's and those of classes that have their own."""
    return [_judge(result, window, slo, indexes) for slo, indexes in _objectives(result)]


def good_requests(result: Result, rows: BoolArray, slo: SloSpec | None) -> BoolArray | None:
    """Those of the rows that were completed within every limit; None without an objective.

    As in `vllm bench serve`, an answer of one token has no tpot and keeps its limit.
    """
    if slo is None:
        return None
    good = completed(result.requests, rows)
    for name, limit in stated_limits(slo).items():
        if name in PER_REQUEST:
            good = good & ~(LATENCIES[name](result.requests) > limit)
    return good


def _objectives(result: Result) -> Iterator[tuple[SloSpec, list[int]]]:
    """Each objective with the classes it governs."""
    governed: dict[int, tuple[SloSpec, list[int]]] = {}
    for index in range(len(result.class_names)):
        slo = objective_of(result.scenario, index)
        if slo is not None:
            governed.setdefault(id(slo), (slo, []))[1].append(index)
    yield from governed.values()


def _judge(result: Result, window: Window, slo: SloSpec, class_indexes: list[int]) -> Verdict:
    rows = window.measured & np.isin(result.requests["class_index"], class_indexes)
    done = completed(result.requests, rows)
    failures = int(rows.sum() - done.sum())
    limits = tuple(_limit(result, name, slo, done, failures) for name in stated_limits(slo))
    good = good_requests(result, rows, slo)
    assert good is not None
    names = tuple(result.class_names[index] for index in class_indexes)
    return Verdict(names, slo.percentile, limits, int(good.sum()), int(rows.sum()))


def _limit(result: Result, name: str, slo: SloSpec, done: BoolArray, failures: int) -> Limit:
    limit = stated_limits(slo)[name]
    if name in PER_REQUEST:
        latency = LATENCIES[name](result.requests)[done]
        value = percentile_with_failures(latency[~np.isnan(latency)], failures, slo.percentile)
    else:
        value = _gap_percentile(result, done, slo.percentile)
    return Limit(name, limit, None if value == np.inf else value, value is None or value <= limit)


def stated_limits(slo: SloSpec) -> dict[str, float]:
    """Latency -> limit in seconds, of the limits that are set."""
    limits = {"ttft": slo.ttft, "tpot": slo.tpot, "itl": slo.itl, "e2el": slo.e2el}
    return {name: limit for name, limit in limits.items() if limit is not None}


def percentile_with_failures(values: FloatArray, failures: int, percentile: float) -> float | None:
    """Linear percentile where each failed request counts as one that took for ever; None of nothing.

    Without failures this is `numpy.percentile`.
    """
    count = values.size + failures
    if count == 0:
        return None
    place = Rank.of(percentile, count)
    ranks = {place.low, place.high if place.share > 0 else place.low}
    if max(ranks) >= values.size:
        return float("inf")
    high = min(place.high, values.size - 1)
    found = np.partition(values, sorted({place.low, high}))
    return float(place.between(found[place.low], found[high]))


def _gap_percentile(result: Result, done: BoolArray, percentile: float) -> float | None:
    statistics = gap_statistics(result, done, (percentile,))
    return statistics.percentiles[percentile] if statistics else None
