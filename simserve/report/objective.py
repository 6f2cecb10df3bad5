"""Whether the objective was met: goodput, attainment, and each limit against the percentile it is set for.

One rule holds for every limit: a request that failed (was refused, given up, cancelled or left unfinished) keeps none.
It counts as a completed one whose values are all endless, so that a limit at p95 is missed as soon as 5 % of the
requests fail, whatever metric it is on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simserve.report.metrics import METRICS, completed
from simserve.report.question import objective_of
from simserve.report.sample import Sample
from simserve.report.statistics import Rank
from simserve.report.tokens import BoolArray
from simserve.report.window import Window
from simserve.spec.result import Result
from simserve.spec.slo import SloSpec


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on one metric, the value at the objective's percentile (None: none, or beyond all measure) and whether
    the limit was kept."""

    metric: str
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
    for name, limit in slo.limits.items():
        good = good & ~(METRICS[name].of_requests(result) > limit)
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
    asked, answered = int(rows.sum()), int(done.sum())
    limits = []
    for name, limit in slo.limits.items():
        sample = METRICS[name].sample(result, done)
        value = percentile_with_failures(sample, endless_values(sample, answered, asked - answered), slo.percentile)
        limits.append(Limit(name, limit, None if value == np.inf else value, value is None or value <= limit))
    good = good_requests(result, rows, slo)
    assert good is not None
    names = tuple(result.class_names[index] for index in class_indexes)
    return Verdict(names, slo.percentile, tuple(limits), int(good.sum()), asked)


def endless_values(sample: Sample, answered: int, failures: int) -> int:
    """How many values the failed requests would have added: each as many as one that was answered has on the mean,
    rounded up in all, and at least one.

    So it is one of any metric that has one value a request, and of the gaps between tokens a request's worth.
    """
    return max(failures, -(-failures * sample.count // answered)) if answered else failures


def percentile_with_failures(sample: Sample, endless: int, percentile: float) -> float | None:
    """Linear percentile of a sample with so many endless values beside its own; None of nothing.

    Without endless values this is `numpy.percentile`.
    """
    count = sample.count + endless
    if count == 0:
        return None
    place = Rank.of(percentile, count)
    if (place.high if place.share > 0 else place.low) >= sample.count:
        return float("inf")
    return sample.at(Rank(place.low, min(place.high, sample.count - 1), place.share))
