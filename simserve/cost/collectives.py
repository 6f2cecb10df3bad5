"""Time of a collective among the GPUs of one replica, as a function of the message each rank holds."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from simserve.cost.curve import FloatArray, LinearCurve
from simserve.spec.hardware import AllReduceSpec, OneShotSpec


class CollectiveTime(NamedTuple):
    """Seconds of one collective against bytes of its message.

    `measured` as far as it goes (between two messages a latency and a bandwidth), the first time below its first point,
    `bus_bandwidth` (B/s, as nccl-tests define it) beyond the last, where `share` of the message passes the bus:
    2 (n - 1) / n in an all-reduce among n, n - 1 in one of one shot, (n - 1) / n in all others, of which the message is
    the whole: what is gathered, scattered or, a GPU's own part included, exchanged.
    """

    measured: LinearCurve
    bus_bandwidth: float
    share: float

    def __call__(self, message: FloatArray) -> FloatArray:
        """Seconds for messages of so many bytes."""
        beyond = np.maximum(0.0, message - self.measured.sizes[-1])
        return self.measured(message) + beyond * self.share / self.bus_bandwidth


def all_reduce(spec: AllReduceSpec, ranks: int) -> CollectiveTime:
    """All-reduce among `ranks` GPUs."""
    sizes, times = zip(*sorted(spec.times.items()), strict=True)
    return CollectiveTime(LinearCurve(sizes, times), spec.bus_bandwidth, 2 * (ranks - 1) / ranks)


def one_shot(spec: OneShotSpec, ranks: int) -> CollectiveTime:
    """All-reduce in one shot: each of `ranks` GPUs sends its message to all others."""
    sizes, times = zip(*sorted(spec.times.items()), strict=True)
    copies = ranks - 1
    rate = copies * (sizes[-1] - sizes[-2]) / (times[-1] - times[-2])
    return CollectiveTime(LinearCurve(sizes, times), rate, copies)


def all_gather(spec: AllReduceSpec, ranks: int) -> CollectiveTime:
    """All-gather among `ranks` GPUs, by the size of the gathered whole: half the traffic of an all-reduce, so it takes
    the time of an all-reduce of half the message.
    """
    sizes, times = zip(*sorted(spec.times.items()), strict=True)
    return CollectiveTime(
        LinearCurve(tuple(2 * size for size in sizes), times), spec.bus_bandwidth, (ranks - 1) / ranks
    )


def half_of(times: Mapping[int, float], ranks: int) -> CollectiveTime:
    """An all-gather, reduce-scatter or all-to-all among `ranks` GPUs as it was measured, bytes of the whole -> seconds;
    larger ones have the rate of the largest.
    """
    sizes, seconds = zip(*sorted(times.items()), strict=True)
    share = (ranks - 1) / ranks
    return CollectiveTime(LinearCurve(sizes, seconds), share * sizes[-1] / seconds[-1], share)


def all_to_all(floor: float, bandwidth: float, ranks: int) -> CollectiveTime:
    """An all-to-all that was not measured: the time of the shortest message, and what a GPU sends over its link."""
    return CollectiveTime(LinearCurve((1.0,), (floor,)), bandwidth, (ranks - 1) / ranks)
