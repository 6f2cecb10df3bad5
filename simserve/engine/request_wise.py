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
from simserve.engine.request import DRAINING, FINISHED, PREFILLING, Request
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


class Progress:
    """How far a running request is ahead of its known tokens: gone with its seat.

    `num_drafts` wait to be verified; `num_placeholders` tokens are in flight; `is_generating` once it is past its
    prompt.
    """

    __slots__ = ("is_generating", "num_drafts", "num_placeholders")

    def __init__(self) -> None:
        self.num_drafts = self.num_placeholders = 0
        self.is_generating = False


class Sample:
    """A request that gets tokens from a step, and the drafts that the step verifies for it: right or wrong ones, or
    padding that stands for nothing.
    """

    __slots__ = ("is_padding", "num_drafts", "request")

    def __init__(self, request: Request, num_drafts: int, is_padding: bool) -> None:
        self.request = request
        self.num_drafts = num_drafts
        self.is_padding = is_padding


class Flight:
    """A plan whose tokens are not known yet: the requests that it computes something of, and those that get a token."""

    __slots__ = ("plan", "requests", "samples")

    def __init__(self, plan: StepPlan, requests: list[Request], samples: list[Sample]) -> None:
        self.plan = plan
        self.requests = requests
        self.samples = samples


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
        self._progress: dict[Request, Progress] = {}
        self._flights: deque[Flight] = deque()
        self._num_in_flight: dict[Request, int] = {}
        """Plans in flight that compute something of a request, whatever has become of it since."""
        self._served: dict[Request, int] = {}
        """Who has what of the budget in the step that is being decided."""
        self._serves_prompts = False
        """Whether that step goes on with a prompt."""

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
        self._served, self._serves_prompts = {}, False
        budget = self.serve_running(plan, threshold)
        if ledger.anyone_waits:
            self.admit(plan, budget, threshold)
        if plan.chunks:
            ledger.num_steps += 1
            self._take_off(plan)
        return plan

    def serve_running(self, plan: StepPlan, threshold: int) -> int:
        """Serve the running requests one by one, preempting for blocks; returns the budget that is left."""
        ledger, budget = self.ledger, self._max_tokens
        pool, running = ledger.pool, ledger.running
        for request in list(ledger.prefilling):
            if budget <= self._slots:
                break
            if request not in running:
                continue
            num_tokens = self.wanted(request, min(threshold, budget - self._slots))
            if num_tokens <= 0:
                continue
            needed = self.blocks_needed(request, num_tokens)
            if needed > pool.num_free:
                budget += self.make_room(plan, request, lambda: needed > pool.num_free)  # noqa: B023 (asked at once)
                if request not in running:
                    break
            budget -= self.serve(plan, request, num_tokens)
        return budget

    def make_room(self, plan: StepPlan, request: Request, is_short: Callable[[], bool]) -> int:
        """Let victims go while blocks are short for a running request; returns what they give back to the budget."""
        return make_room(self.ledger, request, is_short, lambda victim: self.evict(plan, victim))

    def serve(self, plan: StepPlan, request: Request, num_tokens: int) -> int:
        """Give a running request these tokens; returns what that takes of the budget."""
        progress = self._progress[request]
        self._serves_prompts = self._serves_prompts or not progress.is_generating
        taken = self._served[request] = self._compute(plan, request, progress, num_tokens)
        return taken

    def evict(self, plan: StepPlan, victim: Request) -> int:
        """Take a victim's blocks, its drafts are forgotten; returns what it gives back to the budget."""
        self.ledger.preempt(plan, victim)
        del self._progress[victim]
        return self._served.pop(victim, 0)

    def wanted(self, request: Request, limit: int) -> int:
        """Tokens that a running request takes in this step: what it has computed stays below `max_model_len`."""
        progress, computed = self._progress[request], request.num_computed_tokens
        ahead = progress.num_placeholders
        if ahead and computed + 2 - ahead >= request.num_prompt_tokens + request.max_tokens:
            return 0  # what is in flight is the end of it, even if all drafts are rejected
        wanted = request.num_tokens + progress.num_drafts + ahead - computed
        return min(wanted, limit, self.config.max_model_len - computed - 1)

    def blocks_needed(self, request: Request, num_tokens: int) -> int:
        """New blocks for so many tokens more."""
        return max(0, self.ledger.num_blocks_for(request.num_computed_tokens + num_tokens) - request.num_blocks)

    def _compute(self, plan: StepPlan, request: Request, progress: Progress, num_tokens: int) -> int:
        """Tokens and their blocks; returns what that takes of the budget."""
        return self.ledger.compute(plan, request, num_tokens, progress.num_placeholders) + self._slots

    def _take_off(self, plan: StepPlan) -> None:
        """All is decided: prompts and decodes are told apart, and the plan goes into flight."""
        prompts: list[Chunk] = []
        decodes: list[Chunk] = []
        flight = Flight(plan, [chunk.request for chunk in plan.chunks], [])
        for chunk in plan.chunks:
            progress = self._progress[chunk.request]
            is_decode = progress.is_generating
            if chunk.completes:
                sample = self._sample(plan, chunk.request, progress)
                flight.samples.append(sample)
                is_decode = is_decode or sample.is_padding
            (decodes if is_decode else prompts).append(chunk)
        plan.num_decodes, plan.num_sampled = len(decodes), len(flight.samples)
        plan.context = sum([chunk.history + chunk.num_tokens for chunk in decodes])
        plan.num_prefill_tokens = sum([chunk.num_tokens for chunk in prompts])
        plan.chunks = prompts if self._drafts is None else decodes + prompts
        if flight.samples:
            self.ledger.last_fruitful_step = plan.index
        if self._drafts is not None:
            self._drafts.draft_tokens.append(sum([sample.num_drafts for sample in flight.samples]))
        self._flights.append(flight)
        in_flight = self._num_in_flight
        for request in flight.requests:
            in_flight[request] = in_flight.get(request, 0) + 1

    def _sample(self, plan: StepPlan, request: Request, progress: Progress) -> Sample:
        """The step computes the last known token of a request and the drafts after it."""
        if request.first_step < 0:
            request.first_step = plan.index
        elif request.token_step < plan.index - 1:
            plan.gaps += ((request, request.token_step),)
        request.token_step = plan.index
        num_drafts = request.num_computed_tokens - request.num_tokens - progress.num_placeholders
        sample = Sample(request, num_drafts, is_padding=num_drafts > 0 and not progress.is_generating)
        progress.is_generating, progress.num_drafts = True, 0
        if self._asynchronous:
            progress.num_placeholders += 1 + num_drafts
            progress.num_drafts = self._num_speculative_tokens
        else:
            request.state = DRAINING
            del self.ledger.prefilling[request]
        return sample

    # -- admission -----------------------------------------------------------------------------------------------------

    def admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        """Admit from the head of the queue while budget, seats and blocks last; nobody in a step that has preempted
        someone. A preempted request with something in flight is passed over until that is done: its token may belong
        to what is computed again.
        """
        ledger, head, in_flight = self.ledger, self.ledger.head, self._num_in_flight
        if plan.preempted:
            return
        passed_over: list[Request] = []
        while budget > 0 and ledger.anyone_waits and len(ledger.running) < self._num_seats:
            request = ledger.first_waiting()
            if request in in_flight:
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

    def _start(self, plan: StepPlan, request: Request, budget: int, threshold: int) -> int:
        """The head of `waiting` begins to run; returns what it takes of the budget, 0 if it must go on waiting."""
        hit = self.ledger.pool.lookup(request)
        num_tokens = self._admissible_tokens(request, hit, budget - self._slots, threshold)
        if not num_tokens:
            return 0
        self.ledger.start(plan, request, hit)
        progress = self._progress[request] = Progress()
        return self._compute(plan, request, progress, num_tokens)

    def _admissible_tokens(self, request: Request, hit: Hit, limit: int, threshold: int) -> int:
        """Tokens that the head of `waiting` may get in this step; 0 if it must go on waiting."""
        num_hit_tokens = hit.num_blocks * self.ledger.block_size
        wanted = request.num_tokens - num_hit_tokens
        if self._can_be_padded(wanted, num_hit_tokens):
            wanted += self._num_speculative_tokens
            if wanted > limit:
                return 0
        num_tokens = min(wanted, threshold)
        if num_tokens > limit:
            if limit <= 0 or not self.config.enable_chunked_prefill:
                return 0
            num_tokens = limit
        return num_tokens if self.ledger.has_room(request, hit, num_tokens) else 0

    def _can_be_padded(self, wanted: int, num_hit_tokens: int) -> bool:
        """Whether a new request with one token to compute gets drafts that stand for nothing, so that a step of decodes
        stays uniform and keeps its CUDA graph.
        """
        num_drafts = self._num_speculative_tokens
        if wanted != 1 or not num_drafts or self._serves_prompts or self._threshold <= num_drafts:
            return False
        anyone = bool(self._served) or num_hit_tokens > 0
        return anyone and num_hit_tokens + num_drafts + 2 <= self.config.max_model_len

    def _go_on(self, plan: StepPlan, request: Request, budget: int) -> int:
        """A request that has its first token and the KV of its prompt from elsewhere takes a seat; returns what it
        takes of the budget, 0 if that has no room for it. Its first drafts are proposed with the token that this step
        gives it; until then it is padded, if blocks and budget allow.
        """
        ledger, limit, num_drafts = self.ledger, budget - self._slots, self._num_speculative_tokens
        if limit <= 0:
            return 0
        request.num_computed_tokens = computed = request.num_prompt_tokens
        fits = 1 + num_drafts <= limit and self.blocks_needed(request, 1 + num_drafts) <= ledger.pool.num_free
        if not fits or not self._can_be_padded(1, computed):
            num_drafts = 0
        del ledger.arrived[request]
        ledger.go_on(request)
        progress = self._progress[request] = Progress()
        progress.is_generating = not num_drafts  # drafts of one that is not are padding
        return self._compute(plan, request, progress, 1 + num_drafts)

    # -- tokens come in ------------------------------------------------------------------------------------------------

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished, in running order."""
        if plan.is_empty:
            return ()
        flight = self._flights.popleft()
        assert flight.plan is plan, "plans complete in the order in which they were made"
        self._land(flight.requests)
        finished: list[Request] = []
        num_tokens = 0
        for sample in flight.samples:
            request = sample.request
            if request.state is FINISHED:  # aborted meanwhile, or ended by the step before
                continue
            num_tokens += self._take_in(sample)
            if request.num_tokens - request.num_prompt_tokens >= request.output_len:
                self._progress.pop(request, None)
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

    def _land(self, requests: list[Request]) -> None:
        in_flight = self._num_in_flight
        for request in requests:
            left = in_flight[request] - 1
            if left:
                in_flight[request] = left
            else:
                del in_flight[request]

    def _take_in(self, sample: Sample) -> int:
        """A request gets the drafts that were right and one token more, up to the end of its answer; returns how many
        tokens. A token of one that was preempted meanwhile is its own all the same.
        """
        request = sample.request
        if self._drafts is None:
            request.num_tokens += 1
            return 1
        speculation, acceptance, num_drafts = self._drafts.speculation, self._drafts.acceptance, sample.num_drafts
        accepted = 0 if sample.is_padding else acceptance.num_accepted(request, num_drafts)
        self._drafts.observe(num_drafts, accepted)
        num_tokens = min(1 + accepted, request.num_prompt_tokens + request.output_len - request.num_tokens)
        request.num_tokens += num_tokens
        progress = self._progress.get(request)
        if progress is None:
            return num_tokens
        request.num_computed_tokens -= num_drafts - accepted
        if self._asynchronous:
            progress.num_placeholders -= num_drafts - accepted + num_tokens
            known = request.num_computed_tokens - progress.num_placeholders
            self.ledger.hash(request, known // self.ledger.block_size)
        elif not speculation.needs_match or acceptance.finds_match(request):
            progress.num_drafts = self._num_speculative_tokens
        return num_tokens

    def abort(self, request: Request) -> None:
        """The client has left; see `Ledger.abort`."""
        self._progress.pop(request, None)
        super().abort(request)
