"""The replica with the fewest unfinished requests."""

from bisect import bisect_right
from typing import ClassVar

import numpy as np

from simserve.cluster.routers.router import FleetView
from simserve.engine.request import Request


class LeastRequests:
    """The member with the fewest unfinished requests; ties are broken in turn, so that an idle fleet is used evenly."""

    asks_for_load: ClassVar[bool] = True
    looks_inside: ClassVar[bool] = False

    def __init__(self, rng: np.random.Generator) -> None:  # noqa: ARG002
        self._last = -1

    def choose(self, request: Request, fleet: FleetView) -> int:  # noqa: ARG002
        """The least loaded member, looking from the one after the last chosen."""
        members, counts = fleet.members, fleet.outstanding()
        fewest = min(counts)
        try:
            place = counts.index(fewest, bisect_right(members, self._last))
        except ValueError:
            place = counts.index(fewest)
        self._last = members[place]
        return self._last
