"""Intervals: against published numbers, and against what an interval promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.planning.statistics import T_975, t_975, t_interval, wilson_interval


def test_t_interval_of_a_known_sample() -> None:
    # Mean 5, s = sqrt(2.5), n = 5, t(4) = 2.776: half width 1.963.
    interval = t_interval([3, 4, 5, 6, 7])
    assert interval.mean == 5
    assert interval.high - 5 == pytest.approx(1.963, abs=1e-3)
    assert 5 - interval.low == pytest.approx(interval.high - 5)


def test_one_replication_has_no_interval() -> None:
    interval = t_interval([4.2])
    assert interval.mean == 4.2
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


@pytest.mark.parametrize(("degrees", "published"), [(40, 2.0211), (60, 2.0003), (120, 1.9799)])
def test_t_beyond_the_table_agrees_with_published_values(degrees: int, published: float) -> None:
    assert t_975(degrees) == pytest.approx(published, abs=1e-4)


def test_t_falls_with_the_degrees_of_freedom() -> None:
    values = [t_975(degrees) for degrees in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert t_975(len(T_975) + 1) == pytest.approx(T_975[-1], abs=3e-3)


def test_t_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    intervals = [t_interval(list(rng.normal(10, 3, size=3))) for _ in range(4000)]
    covered = sum(interval.low <= 10 <= interval.high for interval in intervals) / len(intervals)
    assert covered == pytest.approx(0.95, abs=0.015)


@given(st.integers(0, 500), st.integers(1, 500))
def test_wilson_interval_holds_the_share_within_zero_and_one(good: int, total: int) -> None:
    interval = wilson_interval(min(good, total), total)
    assert 0 <= interval.low <= interval.mean + 1e-12
    assert interval.mean - 1e-12 <= interval.high <= 1


def test_wilson_interval_of_a_known_sample() -> None:
    # 8 of 10: 0.490 to 0.943, a textbook case.
    interval = wilson_interval(8, 10)
    assert (interval.low, interval.high) == (pytest.approx(0.490, abs=5e-4), pytest.approx(0.943, abs=5e-4))


def test_nothing_observed_has_no_share() -> None:
    assert math.isnan(wilson_interval(0, 0).mean)
