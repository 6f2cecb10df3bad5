"""Statistics of a list of latencies, as `vllm bench serve` takes them: linear percentiles, population deviation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (50, 90, 95, 99)
LEAST_COUNT = {99: 100}
"""Fewer values than this do not carry the percentile: the 99th of fewer than 100 is little else than the largest."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a percentile of `count` values lies: between two ranks, at a share of the way (`numpy`, linear)."""

    low: int
    high: int
    share: float

    @classmethod
    def of(cls, percentile: float, count: int) -> "Rank":
        """The place of a percentile, by numpy's own arithmetic in its order, so that the last bit agrees."""
        index = (count - 1) * (percentile / 100)
        low = math.floor(index)
        return cls(low, min(low + 1, count - 1), index - low)

    def between(self, low: float, high: float) -> float:
        """The value there; numpy counts from the nearer end."""
        distance = high - low
        return high - distance * (1 - self.share) if self.share >= 0.5 else low + distance * self.share


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean, median, standard deviation and percentiles of `count` values, in the unit of the values."""

    count: int
    mean: float
    median: float
    std: float
    percentiles: Mapping[float, float]

    def scaled(self, factor: float) -> "Statistics":
        """The same in another unit."""
        percentiles = {name: value * factor for name, value in self.percentiles.items()}
        return Statistics(self.count, self.mean * factor, self.median * factor, self.std * factor, percentiles)


def statistics_of(values: NDArray[Any], percentiles: Sequence[float] = PERCENTILES) -> Statistics | None:
    """Statistics of plain values; None where there are none."""
    if values.size == 0:
        return None
    ranked = np.percentile(values, percentiles)
    return Statistics(
        count=int(values.size),
        mean=float(np.mean(values)),
        median=float(np.median(values)),
        std=float(np.std(values)),
        percentiles=dict(zip(percentiles, ranked.tolist(), strict=True)),
    )
