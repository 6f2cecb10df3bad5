"""A fleet in two pools: prompts are computed in one, answers in the other, and KV crosses a network in between.

One thing differs from vLLM 0.32: its proxy throws the token of the prefill replica away and has its decode replica
compute the last token of the prompt again; here, as in DistServe, Dynamo and SGLang, the token counts. A decode replica
therefore allocates room for it, too, and nobody that has its KV can be short of a block for its first step.

The journey of a request: both replicas are chosen when it arrives (a decode replica knows what it will not have to
fetch). The prefill replica computes the prompt and its first token. With the token the request goes on to the decode
replica, which gives it blocks as soon as it has them, and then fetches what is not in its own prefix cache. When all of
it is there, the prefill replica frees its blocks and the decode replica gives the second token. So a transfer shows in
the first inter-token latency, and in no other number.

Where drafts are verified, that is done by the decode replicas. The prefill replicas have the drafter, too, which reads
the prompts there: its KV is sent with the model's. What it proposes after the first token is not sent. Of a pipeline
every stage holds the KV of its layers; they are sent together, over the one card of the replica.
"""

from array import array
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from simpy import Event

from simserve.cluster import records
from simserve.cluster.admission import Admission
from simserve.cluster.fleet import Build, Fleet
from simserve.cluster.link import Network
from simserve.cluster.pool import Pool
from simserve.cluster.prompts import Chain, Prompts
from simserve.cluster.records import Columns, RowOf, Sent
from simserve.engine.clock import Clock
from simserve.engine.instant import ARRIVAL, TRANSFER, Due
from simserve.engine.ledger import Fetch, Ledger
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import FINISHED, Request
from simserve.spec.pools import Role
from simserve.workload.columns import Workload


class KvLink(NamedTuple):
    """What lies between the pools: bytes per second of each replica's card and of what all transfers share, None where
    nobody has to wait for it; ticks from asking for blocks to their first byte; and the bytes that are sent for a
    prompt of so many tokens whose first blocks are cached.
    """

    bandwidth: float | None
    backbone: float | None
    latency: int
    num_bytes: Callable[[int, int], int]


class Handover:
    """A request that goes from one replica to another, as either of them sees it."""

    __slots__ = ("computed", "decode", "is_abandoned", "num_bytes", "prefill", "started", "to_go_on")

    def __init__(self, prefill: int, computed: Request, decode: int, to_go_on: Request) -> None:
        self.prefill = prefill
        self.computed = computed
        self.decode = decode
        self.to_go_on = to_go_on
        self.started = self.num_bytes = 0
        self.is_abandoned = False
        """Its client hung up with the first token on its way."""


class Disaggregation(Fleet):
    """A prefill pool and a decode pool.

    A prompt of which fewer than `stay_below` tokens are not in the cache of its decode replica stays there. `listener`
    is told of requests that end with their first token, as decode replicas tell it of all others. `transfers` takes a
    row of (row of the request, start, end, bytes) for each transfer.
    """

    def __init__(
        self,
        clock: Clock,
        pools: tuple[Pool, Pool],
        build: Build,
        prompts: Prompts | None,
        admission: Admission,
        *,
        link: KvLink,
        stay_below: int = 0,
        listener: Listener | None = None,
        sent_again: bool = False,
    ) -> None:
        self._prefill, self._decode = pools
        self._link = link
        self._stay_below = stay_below
        self._handovers: dict[int, Handover] = {}
        self.transfers = array("q")
        self._network = Network(clock)
        self._cards: list[int] = []
        """The link of each replica, by id."""
        super().__init__(clock, pools, build, prompts, admission, listener=listener, sent_again=sent_again)
        self._backbone = self._network.add(link.backbone)

    def _listener_of(self, pool: Pool) -> Listener | None:
        return self.prefilled if pool.role == Role.PREFILL else self._listener

    def _fetch_of(self, pool: Pool) -> Fetch | None:
        return None if pool.role == Role.PREFILL else self._fetch

    def _join(self, pool: Pool, replica: Replica) -> int:
        id = super()._join(pool, replica)
        self._cards.append(self._network.add(self._link.bandwidth))
        return id

    def kill(self, id: int) -> None:
        """Nobody would know of KV that has gone with one side of a transfer.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"replica {id}: in a disaggregated fleet replicas can be drained, to kill them is not modelled"
        )

    def _serve(self, request: Request, row: int, chain: Chain) -> bool:
        decode = self._decode.choose(request, chain)
        is_shared = self._prompts is not None and self._prompts.place(request, row, chain, decode)
        name = int(request.id)
        if self._stays(request, decode):
            self._remember(name, self.replicas[decode], request)
            self.replicas[decode].receive(request)
            return True
        computed = request.to_first_token()
        prefill = self._prefill.choose(computed, chain)
        if is_shared:
            Prompts.hang(computed, chain, prefill)
            computed.is_awaited = request.is_awaited
        self._handovers[name] = Handover(prefill, computed, decode, request)
        self._remember(name, self.replicas[prefill], computed)
        if request.output_len > 1:
            self._ledger(prefill).keep(computed)
        self.replicas[decode].expect(1)
        self.replicas[prefill].receive(computed)
        return True

    def _stays(self, request: Request, decode: int) -> bool:
        """Whether so little is to be computed that a transfer is not worth it (Dynamo's conditional disaggregation)."""
        if not self._stay_below:
            return False
        pool = self._ledger(decode).pool
        return request.num_prompt_tokens - pool.lookup(request).num_blocks * pool.block_size < self._stay_below

    # -- from the first token to the second ----------------------------------------------------------------------------

    def prefilled(self, computed: Request, known: int) -> None:
        """A prefill replica knows the first token of a request at tick `known`, now or later."""
        row = int(computed.id)
        if row not in self._handovers:  # its client hung up before
            return
        self._at(known, ARRIVAL, row, self._go_on)
        if self._listener is not None and self._handovers[row].to_go_on.output_len == 1:
            self._listener(computed, known)

    def _go_on(self, row: int) -> None:
        """The first token is known: the request goes on to its decode replica, if another token is to follow."""
        handover = self._handovers[row]
        request, computed, replica = handover.to_go_on, handover.computed, self.replicas[handover.decode]
        has_kv = computed in self._ledger(handover.prefill).held
        replica.expect(-1)
        if handover.is_abandoned and has_kv:
            self._end(row)
            return
        if not has_kv:  # nothing to be sent: that was all, or it was evicted
            del self._handovers[row]
        if request.output_len == 1 or handover.is_abandoned:
            return
        self._ledger(handover.decode).begin_elsewhere(request, computed.first_step, has_kv)
        request.first_token = computed.first_token
        self._remember(row, replica, request)
        replica.receive(request)

    def _fetch(self, request: Request, num_cached_blocks: int) -> None:
        """A decode replica gives a request blocks, in the step that it is deciding: what is missing is asked for."""
        row = int(request.id)
        handover = self._handovers[row]
        handover.started = at = self.replicas[handover.decode].pace.decides_at
        handover.num_bytes = self._link.num_bytes(request.num_prompt_tokens, num_cached_blocks)
        if handover.num_bytes:
            self._at(at + self._link.latency, TRANSFER, row, self._send)
        else:
            self._at(at, TRANSFER, row, self._end_unless_abandoned)

    def _send(self, row: int) -> None:
        handover = self._handovers[row]
        links = self._cards[handover.prefill], self._cards[handover.decode], self._backbone
        self._network.start(handover.num_bytes, links, partial(self._arrive, row))

    def _arrive(self, row: int) -> None:
        """All KV of a request is there."""
        handover = self._end(row)
        replica = self.replicas[handover.decode]
        self.transfers.fromlist([row, handover.started, int(self._clock.now), handover.num_bytes])
        self._ledger(handover.decode).arrive(handover.to_go_on)
        replica.pace.disturb()

    def _end(self, row: int) -> Handover:
        """The blocks of a prefill replica are not needed any more."""
        handover = self._handovers.pop(row)
        replica = self.replicas[handover.prefill]
        self._ledger(handover.prefill).sent(handover.computed)
        if replica.scheduler.ledger.anyone_waits:
            replica.pace.disturb()
        return handover

    def _end_unless_abandoned(self, row: int) -> None:
        if row in self._handovers:
            self._end(row)

    def abandon(self, name: int) -> None:
        """The client of an attempt has hung up: the engine that has it lets go of it, and nothing goes on."""
        super().abandon(name)
        handover = self._handovers.get(name)
        if handover is None:
            return
        prefill = self._ledger(handover.prefill)
        if handover.computed.state is not FINISHED:  # its first token, if it is known at all, is known too late
            prefill.keep_no_more(handover.computed)
            self.replicas[handover.decode].expect(-1)
            del self._handovers[name]
        elif handover.to_go_on.first_step < 0:  # its first token is on its way to the decode replica
            handover.is_abandoned = True
        elif handover.computed in prefill.held and handover.to_go_on not in self._ledger(handover.decode).loading:
            self._end(name)  # nothing was asked for

    def _ledger(self, id: int) -> Ledger:
        return self.replicas[id].scheduler.ledger

    def _at(self, at: int, priority: int, row: int, then: Callable[[int], object]) -> None:
        event = Due(self._clock, at, priority + row)
        assert event.callbacks is not None
        event.callbacks.append(partial(_call, then, row))

    # -- what is written down ------------------------------------------------------------------------------------------

    def request_columns(self, workload: Workload, sent: Sent, row_of: RowOf = records.same) -> Columns:
        """What became of each request, and of its KV."""
        columns = super().request_columns(workload, sent, row_of)
        return columns | records.transfer_columns(self.transfers, len(columns["status"]), row_of)

    def _first_only(self) -> Collection[int]:
        return self._prefill.replicas


def _call(then: Callable[[int], object], row: int, event: Event) -> None:  # noqa: ARG001
    then(row)
