"""Grids of measured times: reading a table, filling what was not measured, interpolating between what was."""

import csv
import warnings
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simserve.cost.curve import FloatArray

_MICROSECOND = 1e-6

_REACH = 2.0
"""Distance along an axis, in logarithms, over which what is alike in two points falls to 1 / e."""

_OWN = 0.2
"""Deviation of what a point shares with no other, against that of what it shares. Half or twice as much, of this or of
`_REACH`, moves the median error of GEMMs that were left out by 0.3 % of their time at most, on all cards."""

_ROUNDS = 10
"""Rounds of guessing: ten times as many move these medians by 0.03 % at most."""


class Table(NamedTuple):
    """A table of measured times: `rows` maps a shape to its seconds at each of `sizes`, nan where not measured."""

    sizes: FloatArray
    rows: dict[tuple[str, ...], FloatArray]

    def sub(self, *first: str) -> "Table":
        """Rows whose shape begins so, by the rest of their shape."""
        size = len(first)
        return Table(self.sizes, {key[size:]: row for key, row in self.rows.items() if key[:size] == first})


def read_table(path: Path) -> Table:
    """Table of a CSV file: columns with a number for a name are sizes, in microseconds; the others are the shape."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    keys = sum(not name.isdigit() for name in header)
    rows = {
        tuple(line[:keys]): np.array([_MICROSECOND * float(cell) if cell else np.nan for cell in line[keys:]])
        for line in lines
    }
    return Table(np.array([float(name) for name in header[keys:]]), rows)


def filled(values: FloatArray, axes: Sequence[FloatArray]) -> FloatArray:
    """The array without its nan: the median of what lines along each axis say, the nearest value where none passes."""
    values = values.copy()
    for outside in (np.nan, None):
        while np.isnan(values).any():
            found = np.stack([_along(values, axis, at, outside) for axis, at in enumerate(axes)])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the median of nothing, where no line goes through
                middle = np.nanmedian(found, axis=0)
            better = np.where(np.isnan(values), middle, values)
            if np.isnan(better).sum() == np.isnan(values).sum():
                break
            values = better
    return values


def guessed(values: FloatArray, axes: Sequence[FloatArray]) -> FloatArray:
    """The array without its nan: what all known points together make likeliest, the nearer the more (kriging).

    A value is a mean, a part that is like that of near points, by exp(-distance / `_REACH`) along each axis, and a part
    of its own. On a whole grid the likeliest common part takes one small matrix an axis; from guesses of what is
    missing (`filled`) better ones are found until they are their own likeliest.
    """
    missing = np.isnan(values)
    if not missing.any():
        return values
    mean, guess = values[~missing].mean(), filled(values, axes)
    modes = [np.linalg.eigh(np.exp(-np.abs(np.subtract.outer(axis, axis)) / _REACH)) for axis in axes]
    common = reduce(np.multiply.outer, [mode.eigenvalues for mode in modes])
    common /= common + _OWN**2
    for _ in range(_ROUNDS):
        parts = guess - mean
        for mode in modes:
            parts = np.tensordot(parts, mode.eigenvectors, (0, 0))
        parts *= common
        for mode in modes:
            parts = np.tensordot(parts, mode.eigenvectors, (0, 1))
        guess = np.where(missing, mean + parts, guess)
    return guess


def _along(values: FloatArray, axis: int, at: FloatArray, outside: float | None) -> FloatArray:
    """Values of straight lines along one axis; before the first and after the last `outside` (None: the nearest)."""
    lines = np.moveaxis(values, axis, -1)
    result = np.full(lines.shape, np.nan)
    for index in np.ndindex(lines.shape[:-1]):
        known = ~np.isnan(lines[index])
        if known.any():
            result[index] = np.interp(at, at[known], lines[index][known], left=outside, right=outside)
    return np.moveaxis(result, -1, axis)


def between(axis: FloatArray, values: FloatArray, at: float) -> FloatArray:
    """`values` (first dimension along `axis`) at one coordinate: straight between points, flat outside."""
    below = int(np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 2))
    share = float(np.clip((at - axis[below]) / (axis[below + 1] - axis[below]), 0.0, 1.0))
    value: FloatArray = (1.0 - share) * values[below] + share * values[below + 1]
    return value


def rising(values: FloatArray, axis: int = 0) -> FloatArray:
    """The nearest positive values that never fall along an axis, in logarithms: geometric means where they do fall."""
    result: FloatArray = np.exp(np.moveaxis(isotonic(np.moveaxis(np.log(values), axis, 0)), 0, axis))
    return result


def isotonic(values: FloatArray) -> FloatArray:
    """The nearest values that never fall along the first dimension: least squares, so means of runs.

    Each is the largest, over runs that begin at or before it, of the least mean of such a run that ends there or later.
    """
    least = np.full((len(values), *values.shape), -np.inf)
    for start in range(len(values)):
        count = np.arange(1, len(values) - start + 1).reshape(-1, *[1] * (values.ndim - 1))
        means = np.cumsum(values[start:], axis=0) / count
        least[start, start:] = np.minimum.accumulate(means[::-1], axis=0)[::-1]
    result: FloatArray = least.max(axis=0)
    return result
