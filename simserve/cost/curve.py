"""Curves through measured points, read at many sizes at once: straight lines, or straight lines in log-log."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class LinearCurve(NamedTuple):
    """Straight lines between points of ascending `sizes`, flat outside: between two points a start and a rate."""

    sizes: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, size: FloatArray) -> FloatArray:
        """Value at each size."""
        value: FloatArray = np.interp(size, self.sizes, self.values)
        return value


class LogLogCurve(NamedTuple):
    """Straight lines in log-log between points of ascending `sizes`, flat outside."""

    sizes: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, size: FloatArray) -> FloatArray:
        """Value at each size; sizes are positive."""
        value: FloatArray = np.exp(np.interp(np.log(size), np.log(self.sizes), np.log(self.values)))
        return value


def mfu_curve(points: Mapping[int, float]) -> LogLogCurve:
    """Share of the peak FLOP/s that an operator reaches, against its size (rows of a GEMM, length of a prompt).

    Time of a fixed amount of work per row goes as size / mfu(size); where measured points would make it fall with the
    size, the mfu is lowered to keep it level.

    Raises:
        ValueError: no points, or a size or mfu that is not positive.
    """
    if not points or any(size <= 0 or mfu <= 0 for size, mfu in points.items()):
        raise ValueError(f"an mfu curve needs points of positive size and mfu, got {points}")
    sizes: list[float] = []
    values: list[float] = []
    for size, mfu in sorted(points.items()):
        values.append(min(mfu, values[-1] * size / sizes[-1]) if sizes else mfu)
        sizes.append(size)
    return LogLogCurve(tuple(sizes), tuple(values))
