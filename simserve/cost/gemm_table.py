"""Measured times of GEMMs and of mixtures of experts, read as curves over the rows of one operator."""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np

from simserve.cost.curve import FloatArray
from simserve.cost.grid import Table, between, guessed, rising

_PARTS = 4
"""Straight lines in log-log between two measured numbers of rows: the chord of an octave lies 3 % above the bend."""


class RowCurve(NamedTuple):
    """Seconds against rows: straight lines in log-log through measured points, flat below the first. Beyond the last
    row the time grows with the rows, which is what the edge's share of the peak says.

    `is_beyond`: the operator is larger than any that was measured, whatever its rows.
    """

    sizes: FloatArray
    times: FloatArray
    is_beyond: bool = False

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Seconds for each number of rows, 1 or more."""
        times = np.exp(np.interp(np.log(rows), np.log(self.sizes), np.log(self.times)))
        result: FloatArray = times * np.maximum(1.0, rows / self.sizes[-1])
        return result

    def scaled(self, factor: "FloatArray | float") -> "RowCurve":
        """The curve with its times multiplied, at each of its points."""
        return self._replace(times=rising(self.times * factor))


class GemmTable:
    """GEMMs of m rows by k x n weights in one format.

    Interpolated is by how much a measured time exceeds an estimate: the shortest time of all, and the root of the sum
    of squares of what reading the weights and what computing with them takes at the rates of the card. So the bend
    between the two lies where it does between measured points, too. The excess is linear in log n and log k, and in
    log m, and beyond the shapes that of the edge. A GEMM wider than all measured ones is a row of narrower ones.

    `weight`: seconds in which the card reads one weight; `flop`: seconds of a FLOP at its peak.
    """

    def __init__(self, table: Table, weight: float, flop: float) -> None:
        n, k = (np.array(sorted({float(key[i]) for key in table.rows})) for i in (0, 1))
        times = np.full((len(n), len(k), len(table.sizes)), np.nan)
        for key, row in table.rows.items():
            times[np.searchsorted(n, float(key[0])), np.searchsorted(k, float(key[1]))] = row
        self._weight, self._flop = weight, flop
        self._shortest = float(np.nanmin(times))
        self._axes = np.log(n), np.log(k), np.log(table.sizes)
        self._widest, self._deepest = n[-1], k[-1]
        self._sizes = table.sizes
        self._rows = _parted(table.sizes)
        estimates = self._estimate(n[:, None, None] * k[:, None], table.sizes)
        self._excess = guessed(np.log(times / estimates), self._axes)

    def _estimate(self, weights: "FloatArray | float", rows: FloatArray) -> FloatArray:
        """Seconds by the card's rates: convex in log-log over the rows."""
        estimate: FloatArray = self._shortest + weights * np.hypot(self._weight, 2.0 * rows * self._flop)
        return estimate

    def curve(self, inputs: float, outputs: float) -> RowCurve:
        """Times of a GEMM with `inputs` x `outputs` weights."""
        parts = ceil(outputs / self._widest)
        width = outputs / parts
        excess = between(self._axes[1], between(self._axes[0], self._excess, np.log(width)), np.log(inputs))
        known, all_rows = (self._estimate(inputs * width, rows) for rows in (self._sizes, self._rows))
        level = np.log(rising(np.exp(excess) * known) / known)
        times = np.exp(np.interp(np.log(self._rows), self._axes[2], level)) * all_rows
        return RowCurve(self._rows, parts * np.maximum.accumulate(times), inputs > self._deepest)


def _parted(sizes: FloatArray) -> FloatArray:
    """The sizes and, at equal ratios, `_PARTS` - 1 more between any two of them."""
    parts = np.arange(0, len(sizes) - 1 + 1e-9, 1 / _PARTS)
    result: FloatArray = np.exp(np.interp(parts, np.arange(len(sizes)), np.log(sizes)))
    result[::_PARTS] = sizes
    return result


class ExpertsShape(NamedTuple):
    """All experts of a layer: `inter` is the width of one expert over all its ranks, `ranks` those that each expert is
    cut over, `spread` those that the experts are spread over.
    """

    hidden: float
    inter: float
    per_token: int
    experts: int
    ranks: int
    spread: int = 1


class ExpertsTable:
    """Mixtures of experts of one format: a measured shape as it is, another by the work of the nearest."""

    def __init__(self, table: Table) -> None:
        self._sizes = table.sizes
        self._rows: Mapping[ExpertsShape, FloatArray] = {
            ExpertsShape(float(key[0]), float(key[1]), *map(int, key[2:])): row for key, row in table.rows.items()
        }

    def curve(self, shape: ExpertsShape, balance: float) -> RowCurve:
        """Times of one rank. `balance`: FLOPs that the device computes while it reads one weight."""
        nearest = min(self._rows, key=lambda known: _distance(known, shape))
        known = ~np.isnan(self._rows[nearest])
        sizes = self._sizes[known]
        ratio = _work(shape, sizes, balance) / _work(nearest, sizes, balance)
        return RowCurve(sizes, rising(self._rows[nearest][known] * ratio), shape != nearest)


def _distance(one: ExpertsShape, other: ExpertsShape) -> float:
    """How far two shapes lie apart: in experts and experts a token first, then in the size of an expert."""
    logs = [abs(np.log(a / b)) for a, b in zip(one, other, strict=True)]
    return float(4 * (logs[2] + logs[3]) + logs[0] + logs[1] + logs[4] + 2 * logs[5])


def _work(shape: ExpertsShape, tokens: FloatArray, balance: float) -> FloatArray:
    """Time of reading the touched experts or of computing with them, in weights read."""
    weights = shape.hidden * shape.inter / shape.ranks / shape.spread
    touched = shape.experts * (1.0 - (1.0 - shape.per_token / shape.experts) ** tokens)
    work: FloatArray = weights * np.maximum(touched, 2.0 * tokens * shape.per_token / balance)
    return work
