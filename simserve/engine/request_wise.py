"""The scheduler that visits every running request in every step: for pipeline stages and for speculative decoding.

A request past its prompt computes its last known token and, with a drafter, some drafts after it. What a step verifies,
1 + drafts tokens a request, goes through the model at once; of the drafts some are accepted in a row, and one token
follows them for sure. Rejected drafts are taken back from the computed tokens, their blocks are kept for what comes.

Several plans may be in flight, one behind the other; they complete in order. A request whose last known token is in
flight is DRAINING: it keeps blocks and seat, and is passed over until its next token is known. With asynchronous
scheduling the next step is decided as if every draft in flight were accepted: `num_placeholders` tokens of a request
are scheduled and not known yet, and what was decided ahead for one that turns out to have ended is computed for
nothing.

Without drafts and with one plan at a time it decides what `vllm_v1` does (tests/test_request_wise.py), with several
plans, or with drafts, what vLLM 0.32 did in recorded runs: Scheduler.schedule and update_from_output, AsyncScheduler.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from simserve.engine.block_pool import BlockPool
from simserve.engine.drafts import NO_DRAFTS, Drafts
from simserve.engine.eagle_pool import EagleBlockPool
from simserve.engine.ledger import Ledger
from simserve.engine.plan import StepPlan
from simserve.engine.preemption import make_room
from simserve.engine.request import DRAINING, FINISHED, PREFILLING, WAITING
from simserve.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from simserve.engine.block_pool import Hit
    from simserve.engine.config import SchedulerConfig
    from simserve.engine.counters import Counters
    from simserve.engine.ledger import Fetch
    from simserve.engine.observer import PoolObserver
    from simserve.engine.plan import Chunk
    from simserve.engine.request import Request


class Flight:
    """A plan whose tokens are not known yet, with all that it computes, in the order of its decision."""

    __slots__ = ("chunks", "plan")

    def __init__(self, plan: StepPlan, chunks: list[Chunk]) -> None:
        self.plan = plan
        self.chunks = chunks


class RequestWise(Scheduler):
    """vLLM's policy, request by request. With `drafts` the first `num_decodes` of a plan's `chunks` are verifications,
    of a request's last token and its drafts, and `context` are the tokens of KV that they read; without, decodes are
    counted, and chunks are prompts.

    A policy on top of it decides over three verbs: `serve_running`, `admit` and `evict`.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        drafts: Drafts | None = None,
        observer: PoolObserver | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        speculation = NO_DRAFTS if drafts is None else drafts.speculation
        kind = EagleBlockPool if speculation.use_eagle else BlockPool
        pool = kind(config.num_gpu_blocks, config.block_size, config.enable_prefix_caching, observer)
        super().__init__(config, Ledger(config, pool, lookahead=speculation.num_lookahead_tokens, fetch=fetch))
        self._drafts = drafts
        self._asynchronous = config.async_scheduling
        self._num_speculative_tokens = speculation.num_speculative_tokens
        self._slots = speculation.max_num_new_slots_for_drafting
        self._flights: deque[Flight] = deque()
        self._num_served = 0
        """Running requests that the step that is being decided serves; the chunks after theirs are admitted."""

    def counters(self) -> Counters:
        """Those of any scheduler, and of the drafts."""
        return super().counters() | ({} if self._drafts is None else self._drafts.counters())

    def step_columns(self) -> dict[str, array[int]]:
        """Drafts that each step verified, and tokens that it gave."""
        drafts = self._drafts
        return {} if drafts is None else {"draft_tokens": drafts.draft_tokens, "output_tokens": drafts.output_tokens}

    # -- one step ------------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        ledger, threshold = self.ledger, self.longest_chunk()
        ledger.num_calls += 1
        plan = StepPlan(ledger.num_steps)
        budget = self.serve_running(plan, threshold)
        self._num_served = len(plan.chunks)
        if ledger.anyone_waits:
            self.admit(plan, budget, threshold)
        if plan.chunks:
            ledger.num_steps += 1
            self._take_off(plan)
        return plan

    def serve_running(self, plan: StepPlan, threshold: int) -> int:
        """Serve the running requests one by one, preempting for blocks; returns the budget that is left."""
        ledger, budget, slots = self.ledger, self._max_tokens, self._slots
        pool, running = ledger.pool, ledger.running
        for request in list(ledger.prefilling):
            limit = budget - slots
            if limit <= 0:
                break
            if request not in running:
                continue
            num_tokens = self.wanted(request, threshold if threshold < limit else limit)
            if num_tokens <= 0:
                continue
            needed = ledger.blocks_needed(request, num_tokens)
            if needed > pool.num_free:
                budget += self.make_room(plan, request, lambda: needed > pool.num_free)  # noqa: B023 (asked at once)
                if request not in running:
                    break
            budget -= ledger.compute(plan, request, num_tokens, request.num_placeholders) + slots
        return budget

    def make_room(self, plan: StepPlan, request: Request, is_short: Callable[[], bool]) -> int:
        """Let victims go while blocks are short for a running request; returns what they give back to the budget."""
        return make_room(self.ledger, request, is_short, lambda victim: self.evict(plan, victim))

    def evict(self, plan: StepPlan, victim: Request) -> int:
        """Take a victim's blocks, its drafts are forgotten; returns what it gives back to the budget."""
        given = self.ledger.preempt(plan, victim)
        return given + self._slots if given else 0

    def wanted(self, request: Request, limit: int) -> int:
        """Tokens that a running request takes in this step: what it has computed stays below `max_model_len`."""
        computed, ahead = request.num_computed_tokens, request.num_placeholders
        if ahead and computed + 2 - ahead >= request.num_prompt_tokens + request.max_tokens:
            return 0  # what is in flight is the end of it, even if all drafts are rejected
        wanted = request.num_tokens + request.num_drafts + ahead - computed
        if wanted > limit:  # noqa: PLR1730 (min() takes three times as long)
            wanted = limit
        room = self.config.max_model_len - computed - 1
        return wanted if wanted < room else room

    def _take_off(self, plan: StepPlan) -> None:
        """All is decided: prompts and decodes are told apart, and the plan goes into flight."""
        chunks = plan.chunks
        self._flights.append(Flight(plan, chunks))
        prompts: list[Chunk] = []
        decodes: list[Chunk] = []
        num_prefill_tokens = context = num_drafts = 0
        for chunk in chunks:
            is_decode = chunk.request.is_generating
            if chunk.completes:
                if self._drafts is not None:
                    self._verify(chunk)
                    num_drafts += chunk.num_drafts + chunk.num_padding
                    is_decode = is_decode or chunk.num_padding > 0
                self._sample(plan, chunk.request)
            if is_decode:
                decodes.append(chunk)
                context += chunk.history + chunk.num_tokens
            else:
                prompts.append(chunk)
                num_prefill_tokens += chunk.num_tokens
        plan.num_decodes, plan.context, plan.num_prefill_tokens = len(decodes), context, num_prefill_tokens
        if plan.num_sampled:
            self.ledger.last_fruitful_step = plan.index
        if self._drafts is None:
            plan.chunks = prompts
        else:
            plan.chunks = decodes + prompts
            self._drafts.draft_tokens.append(num_drafts)

    def _verify(self, chunk: Chunk) -> None:
        """After the last known token of a request the step verifies its drafts."""
        request = chunk.request
        num_drafts = request.num_computed_tokens - request.num_tokens - request.num_placeholders
        chunk.num_drafts, chunk.num_padding = (num_drafts, 0) if request.is_generating else (0, num_drafts)
        if self._asynchronous:
            request.num_placeholders += 1 + num_drafts
            request.num_drafts = self._num_speculative_tokens
        else:
            request.num_drafts = 0

    def _sample(self, plan: StepPlan, request: Request) -> None:
        """The step computes the last known token of a request, and so gives it the next."""
        index = plan.index
        plan.num_sampled += 1
        if request.first_step < 0:
            request.first_step = index
        elif request.token_step < index - 1:
            plan.gaps += ((request, request.token_step),)
        request.token_step = index
        request.is_generating = True
        if not self._asynchronous:
            request.state = DRAINING
            del self.ledger.prefilling[request]

    # -- admission -----------------------------------------------------------------------------------------------------

    def admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        """Admit from the head of the queue while budget, seats and blocks last; nobody in a step that has preempted
        someone. A preempted request with something in flight is passed over until that is done: its token may belong
        to what is computed again.
        """
        ledger, head = self.ledger, self.ledger.head
        if plan.preempted:
            return
        passed_over: list[Request] = []
        while budget > 0 and ledger.anyone_waits and len(ledger.running) < self._num_seats:
            request = ledger.first_waiting()
            if request.num_preemptions and self._is_in_flight(request):
                ledger.waiting.popleft()
                passed_over.append(request)
                continue
            if request is head.without_room and ledger.pool.version == head.version:
                break
            if request in ledger.to_load:
                if not ledger.load(request):
                    break
                continue
            if request in ledger.arrived:
                taken = self._go_on(plan, request, budget)
            else:
                taken = self._start(plan, request, budget, threshold)
            if not taken:
                break
            budget -= taken
        for request in reversed(passed_over):
            ledger.waiting.appendleft(request)

    def _is_in_flight(self, request: Request) -> bool:
        """Whether a plan in flight computes something of a request, whatever has become of it since."""
        return any(chunk.request is request for flight in self._flights for chunk in flight.chunks)

    def _start(self, plan: StepPlan, request: Request, budget: int, threshold: int) -> int:
        """The head of `waiting` begins to run; returns what it takes of the budget, 0 if it must go on waiting."""
        hit = self.ledger.pool.lookup(request)
        num_tokens = self._admissible_tokens(plan, request, hit, budget - self._slots, threshold)
        if not num_tokens:
            return 0
        self.ledger.start(plan, request, hit)
        request.is_generating, request.num_drafts, request.num_placeholders = False, 0, 0
        return self.ledger.compute(plan, request, num_tokens) + self._slots

    def _admissible_tokens(self, plan: StepPlan, request: Request, hit: Hit, limit: int, threshold: int) -> int:
        """Tokens that the head of `waiting` may get in this step; 0 if it must go on waiting."""
        num_hit_tokens = hit.num_blocks * self.ledger.block_size
        wanted = request.num_tokens - num_hit_tokens
        if self._can_be_padded(plan, wanted, num_hit_tokens):
            wanted += self._num_speculative_tokens
            if wanted > limit:
                return 0
        num_tokens = min(wanted, threshold)
        if num_tokens > limit:
            if limit <= 0 or not self.config.enable_chunked_prefill:
                return 0
            num_tokens = limit
        return num_tokens if self.ledger.has_room(request, hit, num_tokens) else 0

    def _can_be_padded(self, plan: StepPlan, wanted: int, num_hit_tokens: int) -> bool:
        """Whether a new request with one token to compute gets drafts that stand for nothing, so that a step of decodes
        stays uniform and keeps its CUDA graph.
        """
        num_drafts = self._num_speculative_tokens
        if wanted != 1 or not num_drafts or self._threshold <= num_drafts:
            return False
        served = plan.chunks[: self._num_served]
        if not served and not num_hit_tokens:
            return False
        fits = num_hit_tokens + num_drafts + 2 <= self.config.max_model_len
        return fits and all(chunk.request.is_generating for chunk in served)

    def _go_on(self, plan: StepPlan, request: Request, budget: int) -> int:
        """A request that has its first token and the KV of its prompt from elsewhere takes a seat; returns what it
        takes of the budget, 0 if that has no room for it. Its first drafts are proposed with the token that this step
        gives it; until then it is padded, if blocks and budget allow.
        """
        ledger, limit, num_drafts = self.ledger, budget - self._slots, self._num_speculative_tokens
        if limit <= 0:
            return 0
        request.num_computed_tokens = computed = request.num_prompt_tokens
        fits = 1 + num_drafts <= limit and ledger.blocks_needed(request, 1 + num_drafts) <= ledger.pool.num_free
        if not fits or not self._can_be_padded(plan, 1, computed):
            num_drafts = 0
        del ledger.arrived[request]
        ledger.go_on(request)
        request.num_drafts = request.num_placeholders = 0
        request.is_generating = not num_drafts  # drafts of one that is not are padding
        return ledger.compute(plan, request, 1 + num_drafts) + self._slots

    # -- tokens come in ------------------------------------------------------------------------------------------------

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished, in running order."""
        if plan.is_empty:
            return ()
        flight = self._flights.popleft()
        assert flight.plan is plan, "plans complete in the order in which they were made"
        finished: list[Request] = []
        num_tokens = 0
        for chunk in flight.chunks:
            request = chunk.request
            if not chunk.completes or request.state is FINISHED:  # aborted meanwhile, or ended by the step before
                continue
            if self._drafts is None:
                request.num_tokens += 1
            else:
                num_tokens += self._take_in(self._drafts, chunk)
            if request.num_tokens - request.num_prompt_tokens >= request.output_len:
                self.ledger.leave(request)
                finished.append(request)
            elif request.state is DRAINING:
                request.state = PREFILLING
        ledger = self.ledger
        if not self._asynchronous:
            ledger.prefilling = {request: None for request in ledger.running if request.state is PREFILLING}
        if self._drafts is not None:
            self._drafts.output_tokens.append(num_tokens)
        return finished

    def _take_in(self, drafts: Drafts, chunk: Chunk) -> int:
        """A request gets the drafts that were right and one token more, up to the end of its answer; returns how many
        tokens. A token of one that was preempted meanwhile is its own all the same.
        """
        request, num_drafts = chunk.request, chunk.num_drafts + chunk.num_padding
        accepted = drafts.acceptance.num_accepted(request, chunk.num_drafts) if chunk.num_drafts else 0
        drafts.observe(num_drafts, accepted)
        num_tokens = min(1 + accepted, request.num_prompt_tokens + request.output_len - request.num_tokens)
        request.num_tokens += num_tokens
        if request.state is WAITING:
            return num_tokens
        request.num_computed_tokens -= num_drafts - accepted
        if self._asynchronous:
            request.num_placeholders -= num_drafts - accepted + num_tokens
            known = request.num_computed_tokens - request.num_placeholders
            self.ledger.hash(request, known // self.ledger.block_size)
        elif not drafts.speculation.needs_match or drafts.acceptance.finds_match(request):
            request.num_drafts = self._num_speculative_tokens
        return num_tokens
