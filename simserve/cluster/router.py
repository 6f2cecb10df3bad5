"""Which replica gets a request. A policy is a class with `choose`, and a line in `ROUTERS`."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from simserve.engine.census import Census
from simserve.engine.replica import Replica

_DRAWS_AT_ONCE = 1024


class Router(Protocol):
    """Picks the replica of each request, in the order in which they reach the fleet."""

    def choose(self) -> int:
        """Index of the replica that gets the next request."""
        ...


class RoundRobin:
    """Each replica in turn."""

    def __init__(self, replicas: Sequence[Replica], rng: np.random.Generator) -> None:  # noqa: ARG002
        self._count = len(replicas)
        self._next = 0

    def choose(self) -> int:
        """The replica after the one that got the last request."""
        chosen = self._next
        self._next = (chosen + 1) % self._count
        return chosen


class Random:
    """Any replica, with equal chances."""

    def __init__(self, replicas: Sequence[Replica], rng: np.random.Generator) -> None:
        self._count = len(replicas)
        self._rng = rng
        self._drawn: list[int] = []

    def choose(self) -> int:
        """A replica drawn from the router's own random stream."""
        if not self._drawn:
            self._drawn = self._rng.integers(self._count, size=_DRAWS_AT_ONCE).tolist()
        return self._drawn.pop()


class LeastRequests:
    """The replica with the fewest unfinished requests; ties are broken in turn, so that an idle fleet is used evenly.

    The counts are exact up to this instant: a request that finishes at the very tick of a choice still counts.
    """

    def __init__(self, replicas: Sequence[Replica], rng: np.random.Generator) -> None:  # noqa: ARG002
        self._env = replicas[0].env
        self._census = Census(len(replicas))
        for place, replica in enumerate(replicas):
            replica.be_counted(self._census, place)
        self._first = 0

    def choose(self) -> int:
        """The least loaded replica, looking from the one after the last chosen."""
        counts = self._census.counts(int(self._env.now))
        fewest = min(counts)
        try:
            chosen = counts.index(fewest, self._first)
        except ValueError:
            chosen = counts.index(fewest)
        self._first = (chosen + 1) % len(counts)
        return chosen


ROUTERS: dict[str, Callable[[Sequence[Replica], np.random.Generator], Router]] = {
    "round_robin": RoundRobin,
    "random": Random,
    "least_requests": LeastRequests,
}
