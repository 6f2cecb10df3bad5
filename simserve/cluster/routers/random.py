"""Any replica, with equal chances."""

from typing import ClassVar

import numpy as np

from simserve.cluster.routers.router import FleetView
from simserve.engine.request import Request

_DRAWS_AT_ONCE = 1024


class Random:
    """Any member, with equal chances."""

    asks_for_load: ClassVar[bool] = False
    looks_inside: ClassVar[bool] = False

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._drawn: list[int] = []
        self._drawn_of = 0

    def choose(self, request: Request, fleet: FleetView) -> int:  # noqa: ARG002
        """A member drawn from the router's own random stream."""
        members = fleet.members
        if not self._drawn or self._drawn_of != len(members):
            self._drawn_of = len(members)
            self._drawn = self._rng.integers(len(members), size=_DRAWS_AT_ONCE).tolist()
        return members[self._drawn.pop()]
