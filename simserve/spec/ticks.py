"""The simulation clock: integer ticks of 1e-13 s.

Sums of integers are associative, so a closed form, a cumulative sum and stepping one by one agree bit for bit, and a
SimPy timeout lands exactly where it was aimed. Seconds become ticks at the door (workload, cost) and seconds again in
the result, nowhere else.
"""

from typing import overload

import numpy as np
from numpy.typing import NDArray

TICK = 1e-13
"""Length of one tick in seconds. An int64 column of ticks reaches 10 days."""

TICKS_PER_SECOND = 10**13


def to_ticks(seconds: float) -> int:
    """Ticks nearest to a time in seconds."""
    return round(seconds * TICKS_PER_SECOND)


@overload
def to_seconds(ticks: int) -> float: ...
@overload
def to_seconds(ticks: NDArray[np.int64]) -> NDArray[np.float64]: ...
def to_seconds(ticks: int | NDArray[np.int64]) -> float | NDArray[np.float64]:
    """Seconds of a count of ticks; the nearest float64, the same for a number and for an array."""
    return ticks / float(TICKS_PER_SECOND)
