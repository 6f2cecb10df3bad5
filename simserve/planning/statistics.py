"""How sure a number from a few runs is: intervals over independent replications.

A capacity is found once per seed; seeds are independent replications, so Student's t gives the interval of their mean.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 % for 1 to 30 degrees of freedom (any table of the distribution)."""


class Interval(NamedTuple):
    """A mean and its 95 % interval; `low` and `high` are nan where one replication alone gives none."""

    mean: float
    low: float
    high: float


def t_interval(values: Sequence[float]) -> Interval:
    """95 % interval of the mean of independent replications: mean +- t s / sqrt(n), n - 1 degrees of freedom."""
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean, math.nan, math.nan)
    half = t_975(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def geometric_interval(values: Sequence[float]) -> Interval:
    """Geometric mean of positive replications and its 95 % interval: `t_interval` of their logarithms.

    For a quantity that is known to a share of itself and cannot be negative, such as a capacity.
    """
    if len(values) == 1:
        return t_interval(values)
    return Interval(*(math.exp(value) for value in t_interval([math.log(value) for value in values])))


def t_975(degrees: int) -> float:
    """Student's t at 97.5 %: the table up to 30 degrees of freedom, then Fisher's expansion (error below 1e-5)."""
    if degrees <= len(T_975):
        return T_975[degrees - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
