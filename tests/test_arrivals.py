"""Laws of the arrival processes, then their distributions. Statistical bounds are five standard errors on fixed seeds:
a right process fails one of them with probability below 1e-6, and never from one run to the next."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.errors import ScenarioError
from simserve.spec.workload import (
    AllAtOnce,
    Arrivals,
    ClosedLoop,
    Constant,
    Gamma,
    Piecewise,
    Poisson,
    Ramp,
    Stage,
)
from simserve.workload.arrivals import FloatArray, arrival_times
from simserve.workload.streams import random_stream

rates = st.floats(0.01, 1000)
seeds = st.integers(0, 2**32)
renewals = st.one_of(
    st.builds(Poisson, process=st.just("poisson"), rate=rates),
    st.builds(Gamma, process=st.just("gamma"), rate=rates, burstiness=st.floats(0.05, 20)),
    st.builds(Constant, process=st.just("constant"), rate=rates),
)
shapes = st.sampled_from(["linear", "exponential"])
ramps = st.builds(Ramp, process=st.just("ramp"), start_rate=rates, end_rate=rates, shape=shapes)


def count_times(arrivals: Arrivals, count: int, seed: int = 0) -> FloatArray:
    return arrival_times(arrivals, count, None, random_stream(seed, "arrivals"))


def duration_times(arrivals: Arrivals, duration: float, seed: int = 0) -> FloatArray:
    return arrival_times(arrivals, None, duration, random_stream(seed, "arrivals"))


def assert_uniform(sample: FloatArray) -> None:
    """Kolmogorov-Smirnov against the uniform distribution: 2.7 / sqrt(n) is passed with probability 1 - 1e-6."""
    sample = np.sort(sample)
    steps = np.arange(len(sample) + 1) / len(sample)
    distance = max(np.max(steps[1:] - sample), np.max(sample - steps[:-1]))
    assert distance < 2.7 / math.sqrt(len(sample))


@given(st.one_of(renewals, ramps), st.integers(1, 300), seeds)
def test_as_many_as_asked_for_in_order_of_time(arrivals: Arrivals, count: int, seed: int) -> None:
    times = count_times(arrivals, count, seed)
    assert len(times) == count
    assert np.all(np.isfinite(times))
    assert times[0] > 0
    assert np.all(np.diff(times) >= 0)


@given(st.one_of(renewals, ramps), st.floats(0.1, 5), seeds)
def test_a_duration_keeps_all_arrivals_inside(arrivals: Arrivals, load: float, seed: int) -> None:
    fastest = max(getattr(arrivals, key, 0) for key in ("rate", "start_rate", "end_rate"))
    duration = load * 20 / fastest
    times = duration_times(arrivals, duration, seed)
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times <= duration + 1e-9))


@given(renewals, st.integers(1, 200), seeds)
def test_a_duration_and_a_count_bound_the_same_arrivals(arrivals: Arrivals, count: int, seed: int) -> None:
    times = count_times(arrivals, 2 * count + 50, seed)
    duration = times[count - 1]
    np.testing.assert_array_equal(duration_times(arrivals, duration, seed), times[times <= duration + 0.5e-9])


@given(renewals, st.integers(1, 200), seeds)
def test_more_requests_change_no_earlier_one(arrivals: Arrivals, count: int, seed: int) -> None:
    np.testing.assert_array_equal(count_times(arrivals, 2 * count, seed)[:count], count_times(arrivals, count, seed))


@given(renewals, seeds)
def test_twice_the_rate_is_the_same_pattern_twice_as_fast(arrivals: Poisson | Gamma | Constant, seed: int) -> None:
    twice = arrivals.model_copy(update={"rate": 2 * arrivals.rate})
    np.testing.assert_array_equal(2 * count_times(twice, 100, seed), count_times(arrivals, 100, seed))


@given(st.floats(0.5, 100), st.integers(1, 500), seeds)
def test_normalize_puts_the_last_arrival_at_count_over_rate(rate: float, count: int, seed: int) -> None:
    for kind in (Poisson, Gamma):
        shape = {"burstiness": 0.5} if kind is Gamma else {}
        plain = kind(process=kind.__name__.lower(), rate=rate, **shape)
        times = count_times(plain.model_copy(update={"normalize": True}), count, seed)
        assert times[-1] == pytest.approx(count / rate, rel=1e-12)
        gaps, plain_gaps = np.diff(times), np.diff(count_times(plain, count, seed))
        np.testing.assert_allclose(gaps * plain_gaps.sum(), plain_gaps * gaps.sum(), rtol=1e-6, atol=1e-12)


def test_constant_gaps_are_equal_and_the_last_one_counts() -> None:
    np.testing.assert_allclose(count_times(Constant(process="constant", rate=4), 4), [0.25, 0.5, 0.75, 1.0])
    for rate, duration in ((10, 3), (0.1, 30), (3, 7), (0.7, 10), (1e3, 1.2)):
        assert len(duration_times(Constant(process="constant", rate=rate), duration)) == round(rate * duration)


def test_poisson_gaps_are_exponential() -> None:
    times = count_times(Poisson(process="poisson", rate=8), 100_000)
    gaps = np.diff(times, prepend=0.0)
    assert_uniform(1 - np.exp(-8 * gaps))
    assert np.corrcoef(gaps[1:], gaps[:-1])[0, 1] == pytest.approx(0, abs=5 / math.sqrt(len(gaps)))


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0])
def test_gamma_gaps_have_the_stated_mean_and_cv(cv: float) -> None:
    count = 200_000
    gaps = np.diff(count_times(Gamma(process="gamma", rate=5, cv=cv), count), prepend=0.0)
    assert gaps.mean() == pytest.approx(0.2, abs=5 * 0.2 * cv / math.sqrt(count))
    # Fourth central moment of a gamma of shape k in units of its variance squared: 3 + 6 / k.
    assert gaps.var() == pytest.approx((0.2 * cv) ** 2, rel=5 * math.sqrt((2 + 6 * cv**2) / count))


def test_burstiness_is_one_over_cv_squared() -> None:
    by_cv = count_times(Gamma(process="gamma", rate=5, cv=2), 100)
    by_burstiness = count_times(Gamma(process="gamma", rate=5, burstiness=0.25), 100)
    np.testing.assert_array_equal(by_cv, by_burstiness)


def test_burstiness_shows_in_the_counts() -> None:
    """Counts in windows much longer than a gap: variance / mean goes to cv squared (renewal theory)."""
    for cv, arrivals in ((1.0, Poisson(process="poisson", rate=10)), (3.0, Gamma(process="gamma", rate=10, cv=3))):
        counts = np.bincount((duration_times(arrivals, 40_000) // 40).astype(int))[:1000]
        # The variance of 1000 nearly normal counts has a relative standard error of sqrt(2 / 1000) = 4.5 %.
        assert counts.var() / counts.mean() == pytest.approx(cv**2, rel=5 * 0.045)


@pytest.mark.parametrize("shape", ["linear", "exponential"])
@pytest.mark.parametrize(("start", "end"), [(2.0, 20.0), (20.0, 2.0), (5.0, 5.0)])
def test_ramp_over_a_duration_has_its_rate_at_every_time(shape: str, start: float, end: float) -> None:
    """Given their number, arrivals of a Poisson process with rate r(t) are independent draws of density r(t) / m(T)."""
    duration = 2000.0
    times = duration_times(Ramp(process="ramp", start_rate=start, end_rate=end, shape=shape), duration)
    if shape == "linear" or start == end:
        mean_count = start * times + (end - start) * times**2 / (2 * duration)
        total = (start + end) / 2 * duration
    else:
        growth = math.log(end / start) / duration
        mean_count = start * np.expm1(growth * times) / growth
        total = (end - start) / growth
    assert len(times) == pytest.approx(total, abs=5 * math.sqrt(total))
    assert_uniform(mean_count / total)


@pytest.mark.parametrize("shape", ["linear", "exponential"])
def test_ramp_over_a_count_goes_by_the_share_of_requests_sent(shape: str) -> None:
    count, start, end = 50_000, 1.0, 16.0
    times = count_times(Ramp(process="ramp", start_rate=start, end_rate=end, shape=shape), count)
    progress = np.arange(count) / (count - 1)
    rates = start + (end - start) * progress if shape == "linear" else start * (end / start) ** progress
    gaps = np.diff(times, prepend=0.0)
    assert_uniform(1 - np.exp(-gaps * rates))
    # Means of 1000 exponential gaps have a standard error of 3.2 %, their quotient of 4.5 %.
    slowdown = gaps[:1000].mean() / gaps[-1000:].mean()
    assert slowdown == pytest.approx(rates[-1000:].mean() / rates[:1000].mean(), rel=5 * 0.045)


def test_stages_have_their_own_rates_and_nothing_comes_after_them() -> None:
    stages = (Stage(rate=50, duration=100), Stage(rate=5, duration=400), Stage(rate=100, duration=50))
    times = duration_times(Piecewise(process="piecewise", stages=stages), 10_000)
    counts, _ = np.histogram(times, [0, 100, 500, 550])
    for count, expected in zip(counts, (5000, 2000, 5000), strict=True):
        assert count == pytest.approx(expected, abs=5 * math.sqrt(expected))
    assert counts.sum() == len(times)
    assert_uniform(times[times < 100] / 100)


def test_stages_stop_at_the_count_or_say_that_they_bring_fewer() -> None:
    piecewise = Piecewise(process="piecewise", stages=(Stage(rate=10, duration=10), Stage(rate=20, duration=10)))
    np.testing.assert_array_equal(count_times(piecewise, 50), duration_times(piecewise, 20)[:50])
    with pytest.raises(ScenarioError, match=r"num_requests.*bring only \d+ of 1000 requests.*lengthen the last stage"):
        count_times(piecewise, 1000)


def test_one_constant_stage_is_a_poisson_process() -> None:
    piecewise = Piecewise(process="piecewise", stages=(Stage(rate=4, duration=1000),))
    np.testing.assert_allclose(count_times(piecewise, 500), count_times(Poisson(process="poisson", rate=4), 500))


def test_all_at_once_is_time_zero_and_a_closed_loop_leaves_the_times_open() -> None:
    np.testing.assert_array_equal(count_times(AllAtOnce(process="all_at_once"), 3), [0, 0, 0])
    assert np.all(np.isnan(count_times(ClosedLoop(process="closed_loop", users=2), 3)))


@pytest.mark.parametrize("arrivals", [AllAtOnce(process="all_at_once"), ClosedLoop(process="closed_loop", users=2)])
def test_processes_without_an_end_need_a_count(arrivals: Arrivals) -> None:
    with pytest.raises(ScenarioError, match="needs num_requests"):
        duration_times(arrivals, 60)


def test_a_very_low_load_may_bring_nothing() -> None:
    assert len(duration_times(Constant(process="constant", rate=0.01), 60)) == 0
    assert len(duration_times(Poisson(process="poisson", rate=1e-9), 1)) == 0
