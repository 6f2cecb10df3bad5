"""What a metric is: values of a run under one name, in one unit, with the words that explain them.

Summary, console, page, pictures and objectives go over `simserve.report.metrics.METRICS` and know a metric only by
what stands here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simserve.report.sample import FloatArray, Sample, Values
from simserve.report.statistics import LEAST_COUNT, PERCENTILES, Statistics
from simserve.report.tokens import BoolArray
from simserve.report.unit import MILLISECONDS, Unit
from simserve.spec.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(ABC):
    """One entry of the registry."""

    key: str
    """As in `mean_ttft_ms` and `slo.ttft`; where vLLM measures the same, its name."""
    name: str
    """As a person calls it in the middle of a line."""
    title: str
    """Its name in full, over a block of the console and over a picture."""
    text: str
    """The definition in a line; what is in it, and what it is measured from."""
    unit: Unit = MILLISECONDS
    in_vllm: bool = False
    """Whether `vllm bench serve` prints a block of it."""
    queued: bool = False
    """Whether waiting for the engine is in it, so that a full engine makes it longer."""
    needs: str = "arrival"
    """Column of the requests without which a run has none of it."""

    @abstractmethod
    def sample(self, result: Result, chosen: BoolArray) -> Sample:
        """Its values over the chosen requests."""

    @abstractmethod
    def of_requests(self, result: Result) -> FloatArray:
        """Each request's own value, by which it keeps or breaks a limit; nan where it has none, which breaks none."""

    def key_of(self, statistic: str) -> str:
        """Key of a statistic (`mean`, `p95`, ...) in the summary."""
        return f"{statistic}_{self.key}_{self.unit.symbol}"

    @property
    def axis(self) -> str:
        """Name and unit, beside an axis."""
        return f"{self.name} ({self.unit.symbol})"

    def label_of(self, statistic: str) -> str:
        """A statistic of it (`Mean`, `P95`, ...) with the unit, for a person."""
        return f"{statistic} {self.axis}"

    def keys(self, statistics: Statistics | None) -> dict[str, float | int | None]:
        """vLLM's keys (`mean_ttft_ms`, `p99_ttft_ms`, ...) and `n_ttft`; a statistic that does not exist is None."""
        plain = ("mean", "median", "std")
        if statistics is None:
            kinds = (*plain, *(f"p{percentile}" for percentile in PERCENTILES))
            return {**{self.key_of(kind): None for kind in kinds}, f"n_{self.key}": 0}
        found: dict[str, float | None] = {kind: getattr(statistics, kind) for kind in plain}
        for percentile in PERCENTILES:
            exists = statistics.count >= LEAST_COUNT.get(percentile, 1)
            found[f"p{percentile}"] = statistics.percentiles[percentile] if exists else None
        shown = {
            self.key_of(kind): None if value is None else value * self.unit.factor for kind, value in found.items()
        }
        return {**shown, f"n_{self.key}": statistics.count}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetric(Metric):
    """One value a request."""

    formula: Callable[[Result], FloatArray]
    """One value a row of `requests`, nan where the request has none."""

    def sample(self, result: Result, chosen: BoolArray) -> Sample:
        """The values of the chosen requests."""
        return Values(self.formula(result)[chosen])

    def of_requests(self, result: Result) -> FloatArray:
        """The values of all requests."""
        return self.formula(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledMetric(Metric):
    """Any number of values a request, all in one pool."""

    formula: Callable[[Result, BoolArray], Sample]
    """The pool of the chosen requests."""

    def sample(self, result: Result, chosen: BoolArray) -> Sample:
        """The pool of the chosen requests."""
        return self.formula(result, chosen)

    def of_requests(self, result: Result) -> FloatArray:
        """None: a limit on a pool is one on all requests together, which no request breaks alone."""
        return np.full(result.requests["status"].size, np.nan)
