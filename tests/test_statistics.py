"""Intervals: against published numbers, and against what an interval promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.planning.statistics import T_975, geometric_interval, t_975, t_interval


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


@given(st.lists(st.floats(0.01, 1e4), min_size=2, max_size=5), st.floats(0.1, 10))
def test_geometric_interval_is_positive_and_scales_with_its_values(values: list[float], factor: float) -> None:
    interval = geometric_interval(values)
    scaled = geometric_interval([value * factor for value in values])
    assert 0 < interval.low <= interval.mean * (1 + 1e-9)
    assert interval.mean <= interval.high * (1 + 1e-9)
    assert scaled.mean == pytest.approx(interval.mean * factor)


def test_geometric_interval_of_values_that_lie_close_is_the_plain_one() -> None:
    values = [100.0, 101.0, 102.0]
    plain, geometric = t_interval(values), geometric_interval(values)
    assert geometric == pytest.approx(plain, rel=1e-3)
