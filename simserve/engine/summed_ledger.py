"""The ledger of an engine whose decodes advance in step: they are kept as sums, and cost nothing per request.

Requests that get one token a step, nearly all of them, live in the `DecodingSet`; only who is an exception has explicit
numbers. With asynchronous scheduling a plan is in flight while the next one is made: what leaves the set meanwhile is
`late`, and whose last token is in flight drains.

Source of the rules: vLLM 0.32, v1/core/sched/scheduler.py and async_scheduler.py, proven on recorded traces (`simserve
fidelity tests/golden`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.block_pool import BlockPool
from simserve.engine.decoding import DecodingSet
from simserve.engine.ledger import Ledger
from simserve.engine.plan import StepPlan
from simserve.engine.request import DECODING, DRAINING, FINISHED, PREFILLING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.config import SchedulerConfig
    from simserve.engine.ledger import Fetch
    from simserve.engine.observer import PoolObserver
    from simserve.engine.request import Request


class SummedLedger(Ledger):
    """A ledger with a set of decodes, which advance together (`advance`) or stand still (`hold`)."""

    __slots__ = ("_asynchronous", "_held_since", "decoding", "in_flight", "is_held", "shared_decodes")

    def __init__(
        self, config: SchedulerConfig, observer: PoolObserver | None = None, fetch: Fetch | None = None
    ) -> None:
        pool = BlockPool(config.num_gpu_blocks, config.block_size, config.enable_prefix_caching, observer)
        super().__init__(config, pool, fetch=fetch)
        self.decoding = DecodingSet(config.block_size)
        self.shared_decodes: dict[Request, None] = {}
        """Decoding requests whose text another request may look for: their blocks are entered in the cache in every
        step.
        """
        self.in_flight: StepPlan | None = None
        """Asynchronous: the plan made last."""
        self.is_held = False
        """Whether the decodes got nothing in the last step."""
        self._held_since = -1
        """The last step that gave the decodes a token, if they are held."""
        self._asynchronous = config.async_scheduling

    # -- what follows from the sums ------------------------------------------------------------------------------------

    def num_computed_tokens(self, request: Request) -> int:
        """Tokens of a request whose KV is or will be there after the steps decided so far."""
        return self.decoding.clock - request.base if request.state is DECODING else request.num_computed_tokens

    def num_blocks_held(self, request: Request) -> int:
        """Blocks that a running request holds."""
        if request.state is DECODING:
            return -(-(self.decoding.clock - request.base) // self.block_size)
        return request.num_blocks

    def num_hashed_blocks(self, request: Request, ahead: int = 0) -> int:
        """Leading blocks of a running request that are hashed; `ahead`: 1 if this step has given it its token already.

        A block is hashed in the step in which the token that fills it is an input; with asynchronous scheduling one
        step later, if that token is still in flight when the step is decided.
        """
        if request.state is not DECODING:
            return request.num_hashed_blocks
        computed = self.decoding.clock - request.base + ahead
        if self._asynchronous and not (self.is_held and self._knows_last_token(request)):
            computed -= 1
        return max(computed // self.block_size, request.num_hashed_blocks)

    def begin_sharing(self, owner: Request) -> None:
        """Someone may look for this request's own text from now on: enter what is full already."""
        if owner.state is DECODING:
            self.shared_decodes[owner] = None
            owner.num_hashed_blocks = self.num_hashed_blocks(owner)
        super().begin_sharing(owner)

    # -- one step ------------------------------------------------------------------------------------------------------

    def advance(self, plan: StepPlan) -> None:
        """Every decoding request gets a token; those that need a block for it have it."""
        decoding = self.decoding
        plan.num_decodes = plan.num_sampled = num_decodes = decoding.count
        decoding.clock += 1
        if not num_decodes:
            return
        plan.context = num_decodes * decoding.clock - decoding.base_sum
        if decoding.lengths is not None:
            plan.longest = decoding.longest()
        if self.shared_decodes:
            self.enter_shared_decodes()
        if self.is_held:
            self._end_gaps(plan)

    def enter_shared_decodes(self) -> None:
        """What decodes have filled, and others may look for, can be hit."""
        for request in self.shared_decodes:
            request.num_hashed_blocks = self.num_hashed_blocks(request)
            self.pool.enter(request, request.num_hashed_blocks)

    def end_step(self, plan: StepPlan) -> StepPlan:
        """All is decided: whose last known token is computed decodes from now on, and whose answer ends, as
        asynchronous scheduling can tell by `max_tokens`, drains. Returns the plan.
        """
        decoding = self.decoding
        finishes = decoding.finishes
        for chunk in plan.chunks:
            if chunk.completes:
                self._begin_decoding(plan, chunk.request)
        if plan.num_decodes or plan.chunks:
            self.num_steps += 1
        if plan.num_sampled:
            self.last_fruitful_step = plan.index
        if self._asynchronous:
            self.in_flight = plan
        if finishes and finishes[0][0] <= decoding.clock:
            plan.finishing = decoding.pop_finishing(decoding.clock)
            if self._asynchronous:
                for request in plan.finishing:
                    if request.output_len == request.max_tokens:
                        self.drain(request)
        return plan

    def _begin_decoding(self, plan: StepPlan, request: Request) -> None:
        """The step computes the last known token of a request: from the next step on it decodes."""
        plan.num_sampled += 1
        del self.prefilling[request]
        if request.first_step < 0:
            request.first_step = plan.index
        else:
            plan.gaps += ((request, request.token_step),)
        request.token_step = plan.index
        remaining = request.num_prompt_tokens + request.output_len - request.num_tokens - 1
        self.decoding.join(request, request.num_computed_tokens, remaining)
        if request.branch is not None and request.branch.shared:
            self.shared_decodes[request] = None

    def drain(self, request: Request) -> None:
        """The last token of a decoding request is in flight, or waits for others: it gets nothing more, and keeps
        blocks and seat until it finishes.
        """
        self.decoding.leave(request)
        request.num_hashed_blocks = max(request.num_hashed_blocks, (request.num_computed_tokens - 1) // self.block_size)
        request.num_tokens = request.num_computed_tokens
        request.state = DRAINING
        self.shared_decodes.pop(request, None)

    def decode(self, plan: StepPlan, request: Request) -> None:
        """A request that has its first token and the KV of its prompt from elsewhere takes a seat, and gets a token in
        this step like all that decode.
        """
        del self.arrived[request]
        computed = request.num_tokens
        self.take_seat(request)
        self.hash(request, computed // self.block_size)
        self.decoding.join(request, computed, request.num_prompt_tokens + request.output_len - computed - 1)
        if request.branch is not None and request.branch.shared:
            self.shared_decodes[request] = None
        plan.num_decodes += 1
        plan.num_sampled += 1
        plan.context += computed
        plan.longest = 0 if self.decoding.lengths is None else self.decoding.longest()
        plan.gaps += ((request, request.token_step),)

    # -- decodes that stand still --------------------------------------------------------------------------------------

    def hold(self, plan: StepPlan) -> None:
        """The decodes get nothing in this step: their clock stands still."""
        if self.decoding.count and not self.is_held:
            self.is_held, self._held_since = True, plan.index - 1

    def waits_since(self, request: Request) -> int:
        """The step of the last token of a decoding request that is held, if that token is known; else -1."""
        if not self.is_held:
            return -1
        step, flight = self._step_of_last_token(request), self.in_flight
        return step if flight is None or step < flight.index else -1

    def _knows_last_token(self, request: Request) -> bool:
        """Whether the token is known of which asynchronous scheduling would think that it is in flight."""
        return self.in_flight is not None and self.waits_since(request) >= 0

    def _step_of_last_token(self, request: Request) -> int:
        """The step that gave a decoding request its last token, before the one that is being decided."""
        return max(self._held_since, request.token_step) if self.is_held else self.num_steps - 1

    def _end_gaps(self, plan: StepPlan) -> None:
        """Those that were held get a token again."""
        for request in self.running:
            if request.state is DECODING:
                request.num_hashed_blocks = self.num_hashed_blocks(request)
                step = self._step_of_last_token(request)
                if step < plan.index - 1:
                    plan.gaps += ((request, step),)
        self.is_held = False

    # -- requests that lose their turn ---------------------------------------------------------------------------------

    def preempt(self, plan: StepPlan, request: Request, was_served: bool = False) -> int:
        """Take all blocks from a running request and let it wait; `was_served`: this step had given it a token.
        Returns how many tokens of its chunk are taken back.
        """
        if request.state is DECODING:
            self._leave_decoding(request, ahead=int(was_served))
        elif request.state is DRAINING:
            self._keep_late(request)
        return super().preempt(plan, request)

    def starve(self, plan: StepPlan, request: Request) -> None:
        """A decoding request gets nothing in this step: afterwards it has a chunk of one token to compute."""
        self._leave_decoding(request, ahead=0)
        request.state = PREFILLING
        self.prefilling[request] = None
        self.prefilling = dict.fromkeys(sorted(self.prefilling, key=lambda running: running.seq))
        plan.starved += (request,)

    def _leave_decoding(self, request: Request, ahead: int) -> None:
        """From decoding to explicit numbers; `ahead` is 1 if this step has given the request its token already."""
        decoding, step = self.decoding, self._step_of_last_token(request)
        is_known = not self._asynchronous or (self.is_held and self._knows_last_token(request))
        request.num_hashed_blocks = self.num_hashed_blocks(request, ahead)
        decoding.leave(request)
        computed = request.num_computed_tokens
        request.num_tokens = computed + 1 if is_known else computed
        request.num_blocks = -(-(computed + ahead) // self.block_size)
        request.token_step = step
        self.shared_decodes.pop(request, None)
        if not is_known:
            self._keep_late(request)

    def _keep_late(self, request: Request) -> None:
        """A token of the request is in flight (asynchronous scheduling): the plan in flight will bring it."""
        if self.in_flight is not None:
            self.in_flight.late += (request,)

    # -- tokens come in ------------------------------------------------------------------------------------------------

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of a plan; returns the requests that finished, in order of admission. Their blocks and
        seats are free now.
        """
        for request in plan.finishing:
            if request.state is DRAINING:
                request.num_hashed_blocks = request.num_computed_tokens // self.block_size
                self.stand_up(request)
            else:
                self.leave(request)
        for request in plan.late:
            if request.state is not FINISHED:
                request.num_tokens += 1
                if request.state is PREFILLING:
                    self.hash(request, request.num_computed_tokens // self.block_size)
        return plan.finishing

    def leave(self, request: Request) -> None:
        """A request leaves for good, from wherever it stands: seat and blocks are free."""
        if request.state is DECODING:
            num_hashed = self.num_hashed_blocks(request)
            self.decoding.leave(request)
            request.num_hashed_blocks = num_hashed
            self.shared_decodes.pop(request, None)
        elif request.state is PREFILLING:
            # One that has finished was starved by the step after its last, which could not know of the EOS.
            request.num_hashed_blocks = request.num_computed_tokens // self.block_size
        super().leave(request)

    def abort(self, request: Request) -> None:
        """The client has left, between `complete` and the next step. A token in flight (asynchronous scheduling) is
        dropped, and the block that it would end is not hashed.
        """
        plan = self.in_flight
        if plan is not None and plan.finishing and request.state is not FINISHED:
            plan.finishing = [other for other in plan.finishing if other is not request]
        super().abort(request)
