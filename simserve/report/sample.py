"""The values of a metric in a run, over all requests or over some: what every statistic and every limit is taken of."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.statistics import Rank, Statistics, statistics_of

FloatArray = NDArray[np.float64]

SHARES = np.sort(np.concatenate([np.linspace(0, 1, 401), [0.995, 0.999]]))
"""Where the distribution of plain values is drawn."""


class Sample(ABC):
    """Values in the unit of the metric's formula, seconds for a latency."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many values there are."""

    @abstractmethod
    def statistics(self, percentiles: Sequence[float]) -> Statistics | None:
        """Mean, median, deviation and these percentiles; None of nothing."""

    @abstractmethod
    def at(self, place: Rank) -> float:
        """The value at a place among the sorted values, whose ranks must be below `count`."""

    @abstractmethod
    def distribution(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Rising values, and the share of all that does not exceed each; None of nothing."""


class Values(Sample):
    """A plain list, one value a request; nan, for a request that has none, does not count."""

    def __init__(self, values: FloatArray) -> None:
        self._values = values[~np.isnan(values)]

    @property
    def count(self) -> int:
        """How many requests have a value."""
        return self._values.size

    def statistics(self, percentiles: Sequence[float]) -> Statistics | None:
        """As numpy takes them."""
        return statistics_of(self._values, percentiles)

    def at(self, place: Rank) -> float:
        """The value there; the list is not sorted for it."""
        found = np.partition(self._values, sorted({place.low, place.high}))
        return float(place.between(found[place.low], found[place.high]))

    def distribution(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Quantiles at `SHARES`."""
        return (np.quantile(self._values, SHARES), SHARES) if self._values.size else None
