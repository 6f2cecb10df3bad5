"""Each replica in turn."""

from bisect import bisect_right
from typing import ClassVar

import numpy as np

from simserve.cluster.routers.router import FleetView
from simserve.engine.request import Request


class RoundRobin:
    """Each member in turn, in the order of their ids."""

    asks_for_load: ClassVar[bool] = False
    looks_inside: ClassVar[bool] = False

    def __init__(self, rng: np.random.Generator) -> None:  # noqa: ARG002
        self._last = -1

    def choose(self, request: Request, fleet: FleetView) -> int:  # noqa: ARG002
        """The member after the one that got the last request."""
        members = fleet.members
        place = bisect_right(members, self._last)
        self._last = members[place if place < len(members) else 0]
        return self._last
