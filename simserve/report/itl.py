"""Inter-token latency, exactly: statistics of the pooled gaps of millions of tokens, in little memory.

The gaps come as (value, weight) pairs, block by block. A first pass counts them in narrow logarithmic bins, a second
keeps only the bins that hold a wanted order statistic. So every percentile is the one `numpy.percentile` (linear)
gives for the list in which each value stands `weight` times, to the last bit, and that list is never made.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.sample import Sample
from simserve.report.statistics import Rank, Statistics
from simserve.report.tokens import BoolArray, IntArray, exceptional_gaps, token_blocks
from simserve.spec.result import Result
from simserve.spec.ticks import TICK

KEPT_AT_ONCE = 1 << 20
"""Values kept before equal ones are put together; bounds the memory, changes no number."""

Pairs = Iterable[tuple[IntArray, IntArray]]
"""Values (whole, at least 0) and how often each stands in the list."""

MANTISSA_BITS = 12
_SHIFT = 52 - MANTISSA_BITS
_OFFSET = 1023 << MANTISSA_BITS
NUM_BINS = (64 << MANTISSA_BITS) + 2
"""Bins of relative width 2**-12 from 1 to 2**64, and one for 0."""


def pooled_gaps(result: Result, chosen: BoolArray) -> Iterator[tuple[IntArray, IntArray]]:
    """All gaps between successive tokens of the chosen requests: values in ticks and their weights."""
    for block in token_blocks(result, chosen):
        some = block.weight > 0
        yield block.gap[some], block.weight[some]
    odd = exceptional_gaps(result, chosen)
    if odd.size:
        yield odd, np.ones(odd.size, np.int64)


@dataclass(frozen=True, slots=True)
class Pool:
    """What a first pass over the pairs finds: how many values lie in each bin, and their sum."""

    bins: IntArray
    count: int
    total: float


def pool(pairs: Pairs) -> Pool:
    """Count the values of the expanded list by bin."""
    bins, total = np.zeros(NUM_BINS, np.int64), 0.0
    for values, weights in pairs:
        bin_of = _bin(values)
        low = int(bin_of.min(initial=NUM_BINS - 1))
        found = np.bincount(bin_of - low, weights=weights)
        bins[low : low + found.size] += found.astype(np.int64)
        total += float(values.astype(np.float64) @ weights)
    return Pool(bins, int(bins.sum()), total)


def bin_edges() -> NDArray[np.float64]:
    """Lower edge of each bin."""
    bits = np.arange(_OFFSET - 1, _OFFSET - 1 + NUM_BINS, dtype=np.int64) << _SHIFT
    edges = bits.view(np.float64)
    edges[0] = 0.0
    return edges


def _bin(values: IntArray) -> IntArray:
    """The bin of each value: the exponent and the first bits of the mantissa of its float."""
    bits = values.astype(np.float64).view(np.int64) >> _SHIFT
    bins: IntArray = np.maximum(bits - (_OFFSET - 1), 0)
    return bins


@dataclass(frozen=True, slots=True)
class Spread:
    """What a second pass finds: values at the wanted ranks, and the sum of squared distances from the mean."""

    at_rank: dict[int, int]
    squares: float


def spread(pairs: Pairs, pooled: Pool, ranks: Sequence[int]) -> Spread:
    """Values at these ranks (from 0) of the sorted list; `pairs` gives the list of `pooled` once more."""
    reached = np.cumsum(pooled.bins)
    wanted = np.zeros(NUM_BINS, np.bool_)
    wanted[np.searchsorted(reached, ranks, side="right")] = True
    mean, squares, size = pooled.total / pooled.count, 0.0, 0
    kept: list[tuple[IntArray, IntArray]] = []
    for values, weights in pairs:
        squares += float((values - mean) ** 2 @ weights)
        keep = wanted[_bin(values)]
        kept.append((values[keep], weights[keep]))
        size += kept[-1][0].size
        if size > KEPT_AT_ONCE:
            kept = [_collapse(kept)]
            size = kept[0][0].size
    values, weights = _collapse(kept)
    # after each kept value so many of the list have come: all of the lower bins, kept or not, and those of its own
    left_out = np.cumsum(np.where(wanted, 0, pooled.bins))[_bin(values)]
    come = np.cumsum(weights) + left_out
    found = values[np.searchsorted(come, ranks, side="right")]
    return Spread(dict(zip(ranks, found.tolist(), strict=True)), squares)


def _collapse(pairs: Sequence[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    """Each value once, in order, with the sum of its weights."""
    values, weights = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.argsort(values, kind="stable")  # gaps come in rising runs, which a merge sort likes
    values, weights = values[order], weights[order]
    first = np.flatnonzero(np.diff(values, prepend=-1))
    return values[first], np.add.reduceat(weights, first) if first.size else weights


class Weighted(Sample):
    """The list in which each value stands as often as its weight says; `factor` is its unit over the sample's.

    `pairs` is called once for each pass, at most twice a question, and must give the same pairs every time.
    """

    def __init__(self, pairs: Callable[[], Pairs], factor: float = 1.0) -> None:
        self._pairs, self._factor = pairs, factor

    @cached_property
    def _pool(self) -> Pool:
        return pool(self._pairs())

    @property
    def count(self) -> int:
        """Sum of the weights."""
        return self._pool.count

    def statistics(self, percentiles: Sequence[float]) -> Statistics | None:
        """Exactly those of the list, which is never made."""
        pooled = self._pool
        if pooled.count == 0:
            return None
        places = [Rank.of(percentile, pooled.count) for percentile in (50, *percentiles)]
        found = self._spread(places)
        median, *values = (place.between(found.at_rank[place.low], found.at_rank[place.high]) for place in places)
        return Statistics(
            count=pooled.count,
            mean=pooled.total / pooled.count,
            median=median,
            std=math.sqrt(found.squares / pooled.count),
            percentiles=dict(zip(percentiles, values, strict=True)),
        ).scaled(self._factor)

    def at(self, place: Rank) -> float:
        """The value there."""
        at_rank = self._spread([place]).at_rank
        return place.between(at_rank[place.low], at_rank[place.high]) * self._factor

    def _spread(self, places: Sequence[Rank]) -> Spread:
        return spread(self._pairs(), self._pool, sorted({rank for place in places for rank in (place.low, place.high)}))

    def distribution(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """An upright at the lower edge of each bin that holds a value, the first from 0."""
        counts = self._pool.bins
        some = np.flatnonzero(counts)
        if some.size == 0:
            return None
        reached = np.cumsum(counts[some]) / counts.sum()
        shares = np.column_stack([np.concatenate([[0.0], reached[:-1]]), reached]).ravel()
        return np.repeat(bin_edges()[some] * self._factor, 2), shares


def gaps(result: Result, chosen: BoolArray) -> Sample:
    """The pooled gaps (seconds) between tokens of the chosen requests."""
    pairs = partial(pooled_gaps, result, chosen)
    if int(result.steps["steps"].sum()) <= KEPT_AT_ONCE:  # few enough to be made once
        kept = list(pairs())
        return Weighted(lambda: kept, TICK)
    return Weighted(pairs, TICK)
