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
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from simpy import Event

from simserve.cluster.cluster import Cluster
from simserve.cluster.link import Network
from simserve.cluster.prompts import Prompts
from simserve.cluster.router import Router
from simserve.engine.instant import ARRIVAL, TRANSFER, Due
from simserve.engine.ledger import Ledger
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import FINISHED, Request


class KvLink(NamedTuple):
    """What lies between the pools: a network whose links are the cards of the prefill replicas, those of the decode
    replicas and the backbone, in this order; ticks from asking for blocks to their first byte; and what is sent for a
    prompt of so many tokens whose first blocks are cached.
    """

    network: Network
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


class Disaggregation(Cluster):
    """Prefill replicas, then decode replicas, each pool behind its router.

    A prompt of which fewer than `stay_below` tokens are not in the cache of its decode replica stays there. `listener`
    is told of requests that end with their first token, as decode replicas tell it of all others. `transfers` takes a
    row of (row of the request, start, end, bytes) for each transfer.
    """

    def __init__(
        self,
        pools: tuple[Sequence[Replica], Sequence[Replica]],
        routers: tuple[Router, Router],
        prompts: Prompts | None,
        max_model_len: int,
        *,
        link: KvLink,
        stay_below: int = 0,
        listener: Listener | None = None,
    ) -> None:
        prefill, decode = pools
        super().__init__([*prefill, *decode], routers[1], prompts, max_model_len)
        self._prefill_router = routers[0]
        self._num_prefill = len(prefill)
        self._link = link
        self._stay_below = stay_below
        self._listener = listener
        self._handovers: dict[int, Handover] = {}
        self.transfers = array("q")

    def _serve(self, request: Request, row: int, group: int, prefix_len: int) -> bool:
        decode = self._num_prefill + self._router.choose()
        chain = None
        if self._prompts is not None:
            chain = self._prompts.place(request, row, decode, group, prefix_len)
        name = int(request.id)
        if self._stays(request, decode):
            self._place(name, decode, request)
            self.replicas[decode].receive(request)
            return True
        prefill = self._prefill_router.choose()
        computed = Request(name, request.arrival, request.num_prompt_tokens, 1, 1, priority=request.priority)
        if chain is not None:
            Prompts.hang(computed, chain, prefill)
            computed.is_awaited = request.is_awaited
        self._handovers[name] = Handover(prefill, computed, decode, request)
        self._place(name, prefill, computed)
        if request.output_len > 1:
            self._ledger(prefill).keep(computed)
        self.replicas[decode].expect(1)
        self.replicas[prefill].receive(computed)
        return True

    def _place(self, name: int, replica: int, request: Request) -> None:
        """Remember where a client who hangs up is to be heard."""
        if self.placed is not None:
            self.placed[name] = self.replicas[replica], request

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
        if self.placed is not None:
            request.first_token = computed.first_token
            self.placed[row] = replica, request
        replica.receive(request)

    def fetch(self, request: Request, num_cached_blocks: int) -> None:
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
        links = handover.prefill, handover.decode, len(self.replicas)
        self._link.network.start(handover.num_bytes, links, partial(self._arrive, row))

    def _arrive(self, row: int) -> None:
        """All KV of a request is there."""
        handover = self._end(row)
        replica = self.replicas[handover.decode]
        self.transfers.fromlist([row, handover.started, int(self._env.now), handover.num_bytes])
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
        held = self._ledger(handover.prefill).held
        if handover.computed.state is not FINISHED:  # its first token, if it is known at all, is known too late
            self._ledger(handover.prefill).keep_no_more(handover.computed)
            self.replicas[handover.decode].expect(-1)
            del self._handovers[name]
        elif handover.to_go_on.first_step < 0:  # its first token is on its way to the decode replica
            handover.is_abandoned = True
        elif handover.computed in held and handover.to_go_on not in self._ledger(handover.decode).loading:
            self._end(name)  # nothing was asked for

    def _ledger(self, replica: int) -> Ledger:
        return self.replicas[replica].scheduler.ledger

    def _at(self, at: int, priority: int, row: int, then: Callable[[int], object]) -> None:
        event = Due(self._env, at, priority + row)
        assert event.callbacks is not None
        event.callbacks.append(partial(_call, then, row))


def _call(then: Callable[[int], object], row: int, event: Event) -> None:  # noqa: ARG001
    then(row)
