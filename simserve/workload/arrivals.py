"""Arrivals: when requests come to the client, in seconds from the start of the run.

Every open-loop process is randomness of rate 1 (gaps of mean 1) laid on a clock, so that a change of rate stretches the
same pattern and a sweep over rates compares like with like. The first request comes after a gap of its own, as in
`vllm bench serve` (vllm/benchmarks/serve.py, 0.32), whose `--burstiness` is our gamma process. Unlike there the gaps
are not rescaled, unless `normalize` asks for it: that takes away the variance which makes a p99 honest.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.workload import AllAtOnce, Arrivals, ClosedLoop, Constant, Gamma, Piecewise, Poisson, Ramp

FloatArray = NDArray[np.float64]
Gaps = Callable[[int], FloatArray]


def arrival_times(
    arrivals: Arrivals, num_requests: int | None, duration: float | None, rng: np.random.Generator
) -> FloatArray:
    """Sorted times in seconds of `num_requests` arrivals, or of all that come within `duration` seconds.

    In a closed loop the simulation decides when requests come: the times are nan.

    Raises:
        ScenarioError: a process that has no such number of arrivals, or no end.
    """
    if num_requests is not None:
        return _times_by_count(arrivals, num_requests, rng)
    assert duration is not None, "a workload has num_requests or duration"
    return _times_by_duration(arrivals, duration, rng)


def _times_by_count(arrivals: Arrivals, count: int, rng: np.random.Generator) -> FloatArray:
    match arrivals:
        case AllAtOnce():
            return np.zeros(count)
        case ClosedLoop():
            return np.full(count, np.nan)
        case Ramp():
            return _ramp_times_by_count(arrivals, count, rng)
        case Piecewise():
            times = _piecewise_times(arrivals, np.cumsum(rng.standard_exponential(count)))
            if len(times) < count:
                raise ScenarioError(
                    f"workload.num_requests: the stages bring only {len(times)} of {count} requests; "
                    "lengthen the last stage, or state workload.duration in its place"
                )
            return times
        case Poisson() | Gamma() | Constant():
            times = np.cumsum(_unit_gaps(arrivals, rng)(count)) / arrivals.rate
            normalize = isinstance(arrivals, Poisson | Gamma) and arrivals.normalize
            return times * (count / arrivals.rate / times[-1]) if normalize else times


def _times_by_duration(arrivals: Arrivals, duration: float, rng: np.random.Generator) -> FloatArray:
    match arrivals:
        case AllAtOnce() | ClosedLoop():
            raise ScenarioError(f"workload.duration: {arrivals.process} needs num_requests in its place")
        case Ramp():
            return _ramp_times_by_duration(arrivals, duration, rng)
        case Piecewise():
            mean_count = sum(stage.rate * stage.duration for stage in arrivals.stages)
            points = _unit_points(rng.standard_exponential, mean_count)
            return _within(_piecewise_times(arrivals, points), duration)
        case Poisson() | Gamma() | Constant():
            # One gap more than fits is drawn, so that rounding cannot lose the last arrival.
            points = _unit_points(_unit_gaps(arrivals, rng), duration * arrivals.rate + 1)
            return _within(points / arrivals.rate, duration)


def _unit_gaps(arrivals: Poisson | Gamma | Constant, rng: np.random.Generator) -> Gaps:
    """Draw gaps of mean 1. Gamma of shape k: cv = 1 / sqrt(k)."""
    match arrivals:
        case Poisson():
            return rng.standard_exponential
        case Gamma():
            return lambda count: rng.standard_gamma(arrivals.shape, count) / arrivals.shape
        case Constant():
            return np.ones


def _unit_points(gaps: Gaps, end: float) -> FloatArray:
    """Points of a process of rate 1 up to `end`: the same ones, whatever the end."""
    drawn = gaps(math.ceil(end + 4 * math.sqrt(end)) + 1)
    while (points := np.cumsum(drawn))[-1] <= end:
        drawn = np.concatenate((drawn, gaps(len(drawn))))
    return points[points <= end]


def _within(times: FloatArray, duration: float) -> FloatArray:
    """Times up to `duration`, to the nanosecond that the clock of a workload shows."""
    return times[times <= duration + 0.5e-9]


def _ramp_times_by_count(ramp: Ramp, count: int, rng: np.random.Generator) -> FloatArray:
    """Rate by the share of requests sent, as `vllm bench serve --ramp-up-strategy` has it (serve.py, 0.32)."""
    progress = np.arange(count) / max(count - 1, 1)
    if ramp.shape == "linear":
        rates = ramp.start_rate + (ramp.end_rate - ramp.start_rate) * progress
    else:
        rates = ramp.start_rate * (ramp.end_rate / ramp.start_rate) ** progress
    times = np.cumsum(rng.standard_exponential(count) / rates)
    return times * (np.sum(1 / rates) / times[-1]) if ramp.normalize else times


def _ramp_times_by_duration(ramp: Ramp, duration: float, rng: np.random.Generator) -> FloatArray:
    """Rate by the share of time gone: points of rate 1 through the inverse of the mean count m(t) = integral of rate.

    Inversion of the cumulative rate: Cinlar, Introduction to Stochastic Processes (1975), chapter 4.
    """
    start, end = ramp.start_rate, ramp.end_rate
    if ramp.shape == "linear" or start == end:
        slope = (end - start) / duration
        points = _unit_points(rng.standard_exponential, duration * (start + end) / 2)
        # Root of start t + slope t^2 / 2 = point, in the form that stays exact where the slope is small.
        return _within(2 * points / (start + np.sqrt(np.maximum(start**2 + 2 * slope * points, 0))), duration)
    growth = math.log(end / start) / duration
    points = _unit_points(rng.standard_exponential, (end - start) / growth)
    return _within(np.log1p(growth * points / start) / growth, duration)


def _piecewise_times(piecewise: Piecewise, points: FloatArray) -> FloatArray:
    """Points of a process of rate 1 on the clock of the stages; those beyond the last stage do not come."""
    ends = np.cumsum([0.0, *(stage.duration for stage in piecewise.stages)])
    counts = np.cumsum([0.0, *(stage.rate * stage.duration for stage in piecewise.stages)])
    times: FloatArray = np.interp(points[points <= counts[-1]], counts, ends)
    return times
