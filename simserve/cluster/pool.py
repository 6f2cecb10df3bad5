"""A pool: replicas of one kind behind one router, and what the router may know of them."""

from collections.abc import Sequence

from simserve.cluster.prompts import Chain, path_on
from simserve.cluster.routers.router import Router
from simserve.cost import MemoryLedger, StepCost
from simserve.engine.census import Census
from simserve.engine.clock import Clock
from simserve.engine.replica import Replica
from simserve.engine.request import Request
from simserve.spec.pools import Role
from simserve.spec.scenario import Scenario


class Pool:
    """Replicas with the GPU, engine and parallelism of `scenario`, the question to this pool alone; it says how many
    there are at first. Each of them has the KV blocks of `ledger`, and its steps take what `cost` says.

    Requests are counted only if `router` asks for their numbers, or `is_counted`. Replicas skip no steps if `router`
    looks inside, or others do (`is_looked_into`): they see what is there, not what was there when a run of steps began.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        clock: Clock,
        *,
        scenario: Scenario,
        ledger: MemoryLedger,
        cost: StepCost,
        router: Router,
        is_counted: bool = False,
        is_looked_into: bool = False,
    ) -> None:
        self.name = name
        self.role = role
        self.scenario = scenario
        self.ledger = ledger
        self.cost = cost
        self.router = router
        self.members: list[int] = []
        """Ids of the replicas that take requests, in ascending order."""
        self.replicas: dict[int, Replica] = {}
        """All that ever were members, by id."""
        self.is_looked_into = is_looked_into or router.looks_inside
        self._clock = clock
        self._census = Census() if is_counted or router.asks_for_load else None
        self._places: list[int] = []
        """Of the members, in the census."""
        self._chain: Chain = ()
        """Of the request that is being routed."""

    def join(self, id: int, replica: Replica) -> None:
        """A replica takes requests from now on; ids rise."""
        if self._census is not None:
            place = self._census.join()
            replica.be_counted(self._census, place)
            self._places.append(place)
        self.members.append(id)
        self.replicas[id] = replica

    def leave(self, id: int) -> None:
        """A member gets no more requests.

        Raises:
            ValueError: it takes none now, or is the only one who does.
        """
        if id not in self.members:
            raise ValueError(f"replica {id} takes no requests of pool {self.name}")
        if len(self.members) == 1:
            raise ValueError(f"replica {id} is the last one of pool {self.name}: add another one first")
        place = self.members.index(id)
        del self.members[place]
        if self._census is not None:
            del self._places[place]

    def choose(self, request: Request, chain: Chain) -> int:
        """Id of the replica that gets a request; `chain` is what its prompt consists of."""
        if len(self.members) == 1:
            return self.members[0]
        self._chain = chain
        return self.router.choose(request, self)

    def facts(self) -> dict[str, int]:
        """What a result says of one of several pools."""
        return {
            "replicas": len(self.replicas),
            "num_gpus": len(self.replicas) * self.scenario.cluster.gpus_per_replica,
            "num_gpu_blocks": self.ledger.num_gpu_blocks,
        }

    # -- what a router may ask; see `simserve.cluster.routers.router.FleetView` ----------------------------------------

    def outstanding(self) -> Sequence[int]:
        """Unfinished requests of each member, in the order of `members`."""
        assert self._census is not None, "a router that asks for load says so"
        counts = self._census.counts(int(self._clock.now))
        return counts if len(counts) == len(self._places) else [counts[place] for place in self._places]

    def kv_usage(self, id: int) -> float:
        """Share of a replica's KV blocks that are held, 0 to 1."""
        return self.replicas[id].scheduler.ledger.pool.usage

    def cached_tokens(self, id: int, request: Request) -> int:
        """Tokens of the request that is being routed that a replica has in its prefix cache, in whole blocks."""
        path = path_on(self._chain, id)
        if not path:
            return 0
        blocks = self.replicas[id].scheduler.ledger.pool
        probe = request.to_first_token()
        probe.path = path
        return blocks.lookup(probe).num_blocks * blocks.block_size
