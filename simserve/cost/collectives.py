"""Time of a collective among the GPUs of one replica, as a function of the message each rank holds."""

from bisect import bisect_left
from dataclasses import dataclass
from math import exp, log

from simserve.spec.hardware import AllReduceSpec


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Seconds of one collective against bytes of its message.

    Straight lines between measured (bytes, s) points in log-log, the first time below the first point, `bus_bandwidth`
    (B/s, as nccl-tests define it) beyond the last, where `share` of the message passes the bus: 2 (n - 1) / n in an
    all-reduce among n, (n - 1) / n in an all-gather.
    """

    points: tuple[tuple[float, float], ...]
    bus_bandwidth: float
    share: float

    def __call__(self, message: float) -> float:
        """Seconds for a message of `message` bytes."""
        sizes = [size for size, _ in self.points]
        i = bisect_left(sizes, message)
        if i == 0:
            return self.points[0][1]
        if i == len(sizes):
            last, time = self.points[-1]
            return time + (message - last) * self.share / self.bus_bandwidth
        (x0, y0), (x1, y1) = self.points[i - 1], self.points[i]
        return exp(log(y0) + log(y1 / y0) * log(message / x0) / log(x1 / x0))


def all_reduce(spec: AllReduceSpec, ranks: int) -> CollectiveTime:
    """All-reduce among `ranks` GPUs."""
    return CollectiveTime(tuple(sorted(spec.times.items())), spec.bus_bandwidth, 2 * (ranks - 1) / ranks)


def all_gather(spec: AllReduceSpec, ranks: int) -> CollectiveTime:
    """All-gather among `ranks` GPUs, by the size of the gathered whole: half the traffic of an all-reduce, so it takes
    the time of an all-reduce of half the message.
    """
    return CollectiveTime(
        tuple((2 * size, time) for size, time in sorted(spec.times.items())), spec.bus_bandwidth, (ranks - 1) / ranks
    )
