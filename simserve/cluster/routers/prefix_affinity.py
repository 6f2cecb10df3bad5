"""The replica that has most of a prompt in its prefix cache, as long as the load is even."""

from bisect import bisect_right
from typing import ClassVar, Final

import numpy as np

from simserve.cluster.routers.router import FleetView
from simserve.engine.request import Request

MOST_APART: Final = 64
"""Requests between the most and the least loaded replica (SGLang's `--balance-abs-threshold`)."""
MOST_TIMES: Final = 1.5
"""The most loaded replica's requests over those of the least loaded one (SGLang's `--balance-rel-threshold`)."""


class PrefixAffinity:
    """The member with the most cached tokens of a request; among equals, and wherever the load is uneven, the one with
    the fewest unfinished requests; ties are broken in turn.

    The load is uneven if both are exceeded, `MOST_APART` and `MOST_TIMES`. Source: the cache-aware policy of SGLang's
    router (sgl-model-gateway, cache_aware.rs, defaults of 64 and 1.5). Where SGLang guesses from what it has sent to
    whom what a worker has cached, and forgets by a limit of its own, this router knows it, as do those who listen to KV
    events (llm-d's precise prefix-cache scorer, Dynamo's KV router). SGLang sends a prompt of which a worker has less
    than a part (0.3) to the one with most room in its cache; here any hit counts, and without one the load decides.
    """

    asks_for_load: ClassVar[bool] = True
    looks_inside: ClassVar[bool] = True

    def __init__(self, rng: np.random.Generator) -> None:  # noqa: ARG002
        self._last = -1

    def choose(self, request: Request, fleet: FleetView) -> int:
        """The member by the rule above."""
        members, loads = fleet.members, fleet.outstanding()
        first = bisect_right(members, self._last)
        places = [*range(first, len(members)), *range(first)]
        least, most = min(loads), max(loads)
        if most - least <= MOST_APART or most <= MOST_TIMES * least:
            cached = [fleet.cached_tokens(id, request) for id in members]
            best = max(cached)
            places = [place for place in places if cached[place] == best]
        self._last = members[min(places, key=lambda place: loads[place])]
        return self._last
