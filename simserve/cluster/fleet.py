"""The fleet as the clients see it: a request goes in, and is served by one of the replicas or rejected.

A fleet is a list of pools, one in the usual case. The id of a replica is its number in the order in which they were
ever added; no other replica ever gets it. A process may add replicas while the fleet runs, drain them and kill them:

    def grow(simulation: Simulation) -> Generator[Event, None, None]:
        yield simulation.clock.timeout(to_ticks(60))
        simulation.fleet.add(simulation.fleet.pools[0])
"""

from collections.abc import Callable, Collection, Sequence

from simserve.cluster import records
from simserve.cluster.admission import Admission, QueueLimit, Refusal
from simserve.cluster.pool import Pool
from simserve.cluster.prompts import Chain, Prompts
from simserve.cluster.records import Columns, RowOf, Sent
from simserve.engine.clock import Clock
from simserve.engine.ledger import Fetch
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import Request, request_of
from simserve.workload.columns import Arrival, Workload

Build = Callable[[Pool, Listener | None, Fetch | None], Sequence[Replica]]
"""Makes the replicas that join a pool together, one or all that share their experts: who is told of their answers, and
who brings KV from elsewhere, where that is done.
"""

Refused = dict[str, dict[str, int]]


class Fleet:
    """Pools of replicas, each behind its router.

    `build` makes replicas, `listener` is told of their answers. `prompts` is None where no prompt shares anything with
    another. `sent_again`: clients may give up and send again, so that it is remembered where each attempt went.
    `rejected` lists the requests, or attempts, that were refused, `refusals` why.
    """

    def __init__(
        self,
        clock: Clock,
        pools: Sequence[Pool],
        build: Build,
        prompts: Prompts | None,
        admission: Admission,
        *,
        listener: Listener | None = None,
        sent_again: bool = False,
    ) -> None:
        self.pools = pools
        self.replicas: list[Replica] = []
        """All that were ever added, by id."""
        self.rejected: list[int] = []
        self.refusals: list[Refusal] = []
        self._clock = clock
        self._build = build
        self._prompts = prompts
        self._listener = listener
        self._rate_limit, self._queue_limits = admission
        self._limits: list[QueueLimit] = []
        """Of each replica, by id, if there are limits."""
        self._placed: dict[int, tuple[Replica, Request]] | None = {} if sent_again else None
        """Where attempts are whose clients may hang up."""
        self._pool = pools[-1]
        self._max_model_len = self._pool.scenario.engine.max_model_len
        for pool in pools:
            while len(pool.members) < pool.scenario.cluster.replicas:
                self.add(pool)

    # -- replicas come and go ------------------------------------------------------------------------------------------

    def add(self, pool: Pool) -> list[int]:
        """A replica, or a group that shares its experts, joins a pool now; returns the ids."""
        return [
            self._join(pool, replica) for replica in self._build(pool, self._listener_of(pool), self._fetch_of(pool))
        ]

    def _fetch_of(self, pool: Pool) -> Fetch | None:  # noqa: ARG002
        return None

    def _listener_of(self, pool: Pool) -> Listener | None:  # noqa: ARG002
        return self._listener

    def _join(self, pool: Pool, replica: Replica) -> int:
        id = len(self.replicas)
        self.replicas.append(replica)
        pool.join(id, replica)
        if self._queue_limits is not None:
            self._limits.append(QueueLimit(replica, self._queue_limits))
        if self._placed is not None or (self._queue_limits is not None and self._queue_limits.max_tokens is not None):
            replica.keep_first_tokens()
        return id

    def drain(self, id: int) -> None:
        """A replica gets no more requests; those that it has are served to their ends.

        Raises:
            ValueError: it gets none now, or its pool has no other one.
        """
        self._pool_of(id).leave(id)

    def kill(self, id: int) -> None:
        """A replica dies, and its requests are lost: they get no token after those that are under way, and end as
        `unfinished`, unless a client who has lost patience sends them again. Users without patience wait for ever.

        Raises:
            ValueError: as `drain`; a replica that was drained may be killed.
        """
        pool, replica = self._pool_of(id), self.replicas[id]
        if id in pool.members:
            pool.leave(id)
        for request in replica.scheduler.unfinished():
            replica.abort(request)

    def _pool_of(self, id: int) -> Pool:
        return next(pool for pool in self.pools if id in pool.replicas)

    # -- requests come -------------------------------------------------------------------------------------------------

    def submit(self, arrival: Arrival, attempt: int = -1) -> bool:
        """A request reaches the fleet now; False if it is rejected. `attempt` is the name of an attempt at it, where it
        may be sent again until `forget`.
        """
        row, now = arrival.row, int(self._clock.now)
        name = row if attempt < 0 else attempt
        request = request_of(arrival, name, now, self._max_model_len)
        if request is None:
            return self._refuse(row, name, Refusal.TOO_LONG)
        if self._rate_limit is not None and not self._rate_limit.admits(arrival.input_len + request.max_tokens, now):
            return self._refuse(row, name, Refusal.RATE_LIMIT)
        return self._serve(request, row, () if self._prompts is None else self._prompts.chain(arrival))

    def _serve(self, request: Request, row: int, chain: Chain) -> bool:
        """A request that may enter goes to a replica, if that lets it in."""
        id = self._pool.choose(request, chain)
        if self._limits and not self._limits[id].admits():
            return self._refuse(row, int(request.id), Refusal.QUEUE_FULL)
        if self._prompts is not None:
            self._prompts.place(request, row, chain, id)
        replica = self.replicas[id]
        replica.receive(request)
        if self._limits:
            self._limits[id].entered(request)
        if self._placed is not None:
            self._placed[int(request.id)] = replica, request
        return True

    def _remember(self, name: int, replica: Replica, request: Request) -> None:
        """Where a client who hangs up is to be heard."""
        if self._placed is not None:
            self._placed[name] = replica, request

    def _refuse(self, row: int, name: int, why: Refusal) -> bool:
        self.rejected.append(name)
        self.refusals.append(why)
        if self._placed is None:
            self.forget(row)
        return False

    # -- clients that give up ------------------------------------------------------------------------------------------

    def first_token(self, name: int) -> int | None:
        """When the engine knew the first token of an attempt, in ticks: now or before; None if it does not know it."""
        assert self._placed is not None
        if name not in self._placed:
            return None
        replica, request = self._placed[name]
        return replica.knows_first_token(request)

    def answered(self, name: int) -> None:
        """The client of an attempt has the whole answer."""
        assert self._placed is not None
        del self._placed[name]

    def abandon(self, name: int) -> None:
        """The client of an attempt has hung up: whoever serves it lets go of it."""
        assert self._placed is not None
        if name in self._placed:
            replica, request = self._placed.pop(name)
            replica.abort(request)

    def forget(self, row: int) -> None:
        """A request will not be sent, or not be sent again."""
        if self._prompts is not None:
            self._prompts.pass_over(row)

    # -- what is written down ------------------------------------------------------------------------------------------

    def counters(self) -> Refused:
        """Requests that were refused, by reason, where more than the length of a prompt is a reason."""
        if self._rate_limit is None and self._queue_limits is None:
            return {}
        return {"refused": {why.name.lower(): self.refusals.count(why) for why in Refusal}}

    def request_columns(self, workload: Workload, sent: Sent, row_of: RowOf = records.same) -> Columns:
        """What became of each request of a workload; `row_of` tells which one a request of the engine has."""
        return records.request_columns(
            workload, sent, self.replicas, self.rejected, self._max_model_len, first=self._first_only(), row_of=row_of
        )

    def gap_columns(self, requests: Columns, row_of: RowOf = records.same) -> Columns:
        """Gaps between tokens, with `requests` as `request_columns` states them."""
        return records.gap_columns(self.replicas, requests.get("prefill_replica"), row_of)

    def _first_only(self) -> Collection[int]:
        """Ids of replicas that give first tokens only."""
        return ()
