"""What a router is, and what it may know of the replicas among which it chooses."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from simserve.engine.request import Request


class FleetView(Protocol):
    """Replicas by their ids, as a router sees them (`simserve.cluster.pool.Pool`)."""

    @property
    def members(self) -> Sequence[int]:
        """Ids of the replicas that take requests, in ascending order."""
        ...

    def outstanding(self) -> Sequence[int]:
        """Unfinished requests of each member, in the order of `members`; for routers with `asks_for_load`. Exact up to
        this instant, so that a request that finishes at this very tick still counts.
        """
        ...

    def kv_usage(self, id: int) -> float:
        """Share of a replica's KV blocks that are held, 0 to 1; for routers with `looks_inside`."""
        ...

    def cached_tokens(self, id: int, request: Request) -> int:
        """Tokens of the request that is being routed that a replica has in its prefix cache, in whole blocks; for
        routers with `looks_inside`.
        """
        ...


class Router(Protocol):
    """Picks the replica of each request, in the order in which they come; made with a random stream of its own.

    To know more of a fleet costs something even while nobody asks, hence a router says beforehand what it will ask for.
    """

    asks_for_load: ClassVar[bool]
    """Whether it asks for outstanding requests, which are counted only then."""
    looks_inside: ClassVar[bool]
    """Whether it asks for KV usage or cached tokens: replicas then take every step by itself, so that what it sees is
    never older than their last step."""

    def choose(self, request: Request, fleet: FleetView) -> int:
        """Id of the member of `fleet` that gets `request`."""
        ...
