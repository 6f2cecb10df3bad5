"""vLLM's scheduler: who gets how many tokens in the next step, who is admitted, who is preempted.

Plain Python without SimPy and without time: `schedule()` decides a step, `complete(plan)` takes in its tokens; between
the two, with asynchronous scheduling, the next step is decided already. The same class drives simulations, replays of
recorded traces and the real engine of `calibration/`.

Rules: vLLM 0.32, v1/core/sched/scheduler.py and async_scheduler.py, proven on recorded traces (`simserve fidelity
tests/golden`). Requests that get one token a step, nearly all of them, are not visited: they live in the `DecodingSet`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.block_pool import BlockPool, Hit
from simserve.engine.config import SchedulerConfig
from simserve.engine.decoding import DecodingSet
from simserve.engine.plan import Chunk, StepPlan
from simserve.engine.queues import QUEUES
from simserve.engine.request import DECODING, DRAINING, FINISHED, PREFILLING, WAITING, Request
from simserve.engine.walk import walk

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from simserve.engine.counters import Counters
    from simserve.engine.handover import KvConsumer, KvProducer
    from simserve.engine.observer import PoolObserver

UNLIMITED = 1 << 62


class Scheduler:
    """The `vllm_v1` policy over one block pool, which `observer` may watch."""

    def __init__(self, config: SchedulerConfig, observer: PoolObserver | None = None) -> None:
        self.config = config
        self.pool = BlockPool(config.num_gpu_blocks, config.block_size, config.enable_prefix_caching, observer)
        self.decoding = DecodingSet(config.block_size)
        self.waiting = QUEUES[config.scheduling_policy]()
        self.running: dict[Request, None] = {}
        """In order of admission."""
        self.prefilling: dict[Request, None] = {}
        """Running requests with a chunk to compute, in order of admission."""
        self.num_steps = 0
        self.num_calls = 0
        self.num_preemptions = 0
        self.num_thrashings = 0
        """Preemptions of a request that was preempted before, with no token given to anyone in between."""
        self.num_cache_queries = 0
        self.num_cache_hits = 0
        self._asynchronous = config.async_scheduling
        self.block_size = config.block_size
        self._max_tokens = config.max_num_batched_tokens
        self.by_priority = config.scheduling_policy == "priority"
        self._max_running = config.max_num_active_seqs or config.max_num_seqs
        self._watermark_blocks = int(config.watermark * config.num_gpu_blocks)
        self._threshold = config.long_prefill_token_threshold or UNLIMITED
        self.shared_decodes: dict[Request, None] = {}
        """Decoding requests whose text another request may look for: their blocks are entered in the cache in every
        step.
        """
        self._in_flight: StepPlan | None = None
        self._last_fruitful_step = -1
        """The last step that gave anyone a token."""
        self._num_admitted = 0
        self._blocked_head: Request | None = None
        self._blocked_version = -1
        self._tested_version = -1
        self._head_stays_blocked = False
        """Whether nothing but a release or an arrival can admit the head of `waiting`."""
        self.producer: KvProducer | None = None
        """Where requests go on elsewhere: what holds their KV until it is there."""
        self.consumer: KvConsumer | None = None
        """Where requests begin elsewhere: what fetches their KV."""

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """A request arrives. It never changes what the plans already made do."""
        for branch, _ in request.path[:-1]:
            if not branch.shared:
                branch.shared = True
                if branch.owner is not None:
                    self._begin_sharing(branch.owner)
        if not self.waiting or self.by_priority:
            self._head_stays_blocked = False
        self.waiting.append(request)

    def _begin_sharing(self, owner: Request) -> None:
        """Someone may look for this request's own text from now on: enter what is full already."""
        if owner.state is DECODING:
            self.shared_decodes[owner] = None
            owner.num_hashed_blocks = self.num_hashed_blocks(owner)
        self.pool.enter(owner, owner.num_hashed_blocks)

    @property
    def has_requests(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self.running or self.waiting)

    def unfinished(self) -> list[Request]:
        """Every request that is here."""
        return [*self.running, *self.waiting]

    def counters(self) -> Counters:
        """What it has counted, by the names of a result's `meta`; those of several engines add up."""
        return {
            "total_steps": self.num_steps,
            "scheduler_calls": self.num_calls,
            "prefix_cache_queries": self.num_cache_queries,
            "prefix_cache_hits": self.num_cache_hits,
            "num_preemptions": self.num_preemptions,
            "num_thrashings": self.num_thrashings,
        }

    def step_columns(self) -> dict[str, array[int]]:
        """What it has kept of each step beside the step log, where steps and rows of the log are the same."""
        return {}

    def waits_since(self, request: Request) -> int:  # noqa: ARG002
        """The step of the last token of a decoding request that is passed over, as some policies do; else -1."""
        return -1

    # -- one step ------------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        decoding, pool = self.decoding, self.pool
        plan = StepPlan(self.num_steps)
        self.num_calls += 1
        budget = self._max_tokens
        threshold = self._threshold
        if threshold is not UNLIMITED and len(self.running) + len(self.waiting) == 1:
            threshold = UNLIMITED  # nobody to be kept waiting by a long prompt
        num_decodes = decoding.count
        needed = decoding.phases[decoding.clock % self.block_size]
        if (
            needed > pool.num_free
            or num_decodes > budget
            or (self.prefilling and not self._fits(needed, budget, threshold))
        ):
            budget = self._walk(plan, budget, threshold)
        else:
            if needed:
                pool.take(needed)
            budget -= num_decodes
            for request in self.prefilling:
                wanted = min(request.num_tokens - request.num_computed_tokens, threshold, budget)
                budget -= self.schedule_chunk(plan, request, wanted)
        plan.num_decodes = plan.num_sampled = num_decodes = decoding.count
        decoding.clock += 1
        if num_decodes:
            plan.context = num_decodes * decoding.clock - decoding.base_sum
            plan.longest = 0 if decoding.lengths is None else decoding.longest()
            for request in self.shared_decodes:
                request.num_hashed_blocks = self.num_hashed_blocks(request)
                pool.enter(request, request.num_hashed_blocks)
        if self.waiting:
            self._admit(plan, budget, threshold)
            self._tested_version = pool.version
            num_decodes = plan.num_decodes
        if plan.chunks:
            for chunk in plan.chunks:
                if chunk.completes:
                    self._begin_decoding(plan, chunk.request)
            self.num_steps += 1
        elif num_decodes:
            self.num_steps += 1
        self._note_tokens(plan)
        return plan

    def _walk(self, plan: StepPlan, budget: int, threshold: int) -> int:
        """Serve the running requests where their order matters; returns the budget that is left."""
        return walk(self, plan, budget, threshold)

    def _note_tokens(self, plan: StepPlan) -> None:
        """Who gets the last token from this step; with asynchronous scheduling those whose `max_tokens` tell get no
        more.
        """
        decoding = self.decoding
        if plan.num_sampled:
            self._last_fruitful_step = plan.index
        if self._asynchronous:
            self._in_flight = plan
        if decoding.finishes and decoding.finishes[0][0] <= decoding.clock:
            plan.finishing = decoding.pop_finishing(decoding.clock)
            if self._asynchronous:
                for request in plan.finishing:
                    if request.output_len == request.max_tokens:
                        self._drain(request)

    def _fits(self, needed: int, budget: int, threshold: int) -> bool:
        """Whether the chunks can be served without regard to the order of `running`: none is cut short before a later
        request's turn.
        """
        if self.shared_decodes:
            return False
        budget -= self.decoding.count
        block_size = self.block_size
        last = next(reversed(self.running))
        for request in self.prefilling:
            num_tokens = min(request.num_tokens - request.num_computed_tokens, threshold)
            if num_tokens > budget:
                if request is not last or not budget:
                    return False
                num_tokens = budget
            budget -= num_tokens
            needed += -(-(request.num_computed_tokens + num_tokens) // block_size) - request.num_blocks
        return needed <= self.pool.num_free

    def schedule_chunk(self, plan: StepPlan, request: Request, num_tokens: int) -> int:
        """Give a request that is not decoding its tokens and their blocks; returns the number of tokens."""
        history, size = request.num_computed_tokens, self.block_size
        computed = history + num_tokens
        num_blocks = -(-computed // size)
        if num_blocks > request.num_blocks:
            self.pool.take(num_blocks - request.num_blocks)
            request.num_blocks = num_blocks
        request.num_computed_tokens = computed
        request.num_hashed_blocks = num_hashed = computed // size
        if request.path:
            self.pool.enter_shared(request, num_hashed)
        plan.chunks.append(Chunk(request, num_tokens, history, computed == request.num_tokens))
        plan.num_prefill_tokens += num_tokens
        return num_tokens

    def _begin_decoding(self, plan: StepPlan, request: Request) -> None:
        """The step computes the last known token of a request: from the next step on it decodes."""
        plan.num_sampled += 1
        del self.prefilling[request]
        if request.first_step < 0:
            request.first_step = plan.index
        else:
            plan.gaps += ((request, request.token_step),)
        remaining = request.num_prompt_tokens + request.output_len - request.num_tokens - 1
        self.decoding.join(request, request.num_computed_tokens, remaining)
        if request.branch is not None and request.branch.shared:
            self.shared_decodes[request] = None

    # -- requests that lose their turn ---------------------------------------------------------------------------------

    def preempt(self, plan: StepPlan, request: Request, was_served: bool) -> None:
        """Take all blocks from a running request and let it wait, at the front; its tokens are computed again later."""
        if request.state is DECODING:
            self._leave_decoding(request, ahead=int(was_served))
        elif request.state is DRAINING:
            self._keep_late(request)
        else:
            self._drop_chunk(plan, request)
        self.pool.release(request, may_return=True)
        del self.running[request]
        request.state = WAITING
        request.num_computed_tokens = 0
        self.waiting.appendleft(request)
        self._note_preemption(plan, request)

    def _drop_chunk(self, plan: StepPlan, request: Request) -> None:
        """A request that is not decoding gets nothing in this step, or what it got is taken back."""
        self.prefilling.pop(request, None)
        plan.chunks = [chunk for chunk in plan.chunks if chunk.request is not request]
        plan.num_prefill_tokens = sum(chunk.num_tokens for chunk in plan.chunks)

    def _note_preemption(self, plan: StepPlan, request: Request) -> None:
        if request.num_preemptions and self._last_fruitful_step < request.preempted_at:
            self.num_thrashings += 1
        request.preempted_at = self.num_steps
        request.num_preemptions += 1
        self.num_preemptions += 1
        plan.preempted += (request,)

    def starve(self, plan: StepPlan, request: Request) -> None:
        """A decoding request gets nothing in this step: afterwards it has a chunk of one token to compute."""
        self._leave_decoding(request, ahead=0)
        request.state = PREFILLING
        self.prefilling[request] = None
        self.prefilling = dict.fromkeys(sorted(self.prefilling, key=lambda running: running.seq))
        plan.starved += (request,)

    def _leave_decoding(self, request: Request, ahead: int) -> None:
        """From decoding to explicit numbers; `ahead` is 1 if this step has given the request its token already."""
        decoding = self.decoding
        request.num_hashed_blocks = self.num_hashed_blocks(request, ahead)
        decoding.leave(request)
        computed = request.num_computed_tokens
        request.num_tokens = computed if self._asynchronous else computed + 1
        request.num_blocks = -(-(computed + ahead) // self.block_size)
        request.token_step = self.num_steps - 1
        self.shared_decodes.pop(request, None)
        self._keep_late(request)

    def _keep_late(self, request: Request) -> None:
        """A token of the request is in flight (asynchronous scheduling): the plan in flight will bring it."""
        if self._in_flight is not None:
            self._in_flight.late += (request,)

    def num_hashed_blocks(self, request: Request, ahead: int = 0) -> int:
        """Leading blocks of a decoding request that are hashed.

        A block is hashed in the step in which the token that fills it is an input; with asynchronous scheduling one
        step later, since that token is still in flight when the step is decided.
        """
        computed = self.decoding.clock - request.base + ahead
        if self._asynchronous:
            computed -= 1
        return max(computed // self.block_size, request.num_hashed_blocks)

    # -- admission -----------------------------------------------------------------------------------------------------

    def _admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        """Admit from the head of `waiting` while budget, seats and blocks last; a head that fails blocks those behind
        it.
        """
        waiting, running, pool = self.waiting, self.running, self.pool
        self._head_stays_blocked = False
        if plan.preempted:
            return
        while waiting and budget > 0:
            if len(running) >= self._max_running:
                self._head_stays_blocked = True
                return
            request = waiting[0]
            if request is self._blocked_head and pool.version == self._blocked_version:
                self._head_stays_blocked = True
                return
            if self.consumer is not None and self.consumer.awaits(request):
                taken = self.consumer.admit(plan, request, budget)
                if taken is None:
                    return
                budget -= taken
                continue
            hit = pool.lookup(request)
            num_tokens = self._admissible_tokens(request, hit, budget, threshold)
            if not num_tokens:
                return
            waiting.popleft()
            self._start(plan, request, hit)
            budget -= self.schedule_chunk(plan, request, num_tokens)

    def _admissible_tokens(self, request: Request, hit: Hit, budget: int, threshold: int) -> int:
        """Tokens that the head of `waiting` may get in this step; 0 if it must go on waiting."""
        size, pool = self.block_size, self.pool
        num_hit_tokens = hit.num_blocks * size
        num_tokens = min(request.num_tokens - num_hit_tokens, threshold)
        if num_tokens > budget:
            if not self.config.enable_chunked_prefill:
                return 0
            num_tokens = budget
        extra = hit.num_free - hit.num_blocks + (self._watermark_blocks if self.running else 0)
        if self.config.scheduler_reserve_full_isl and -(-request.num_tokens // size) + extra > pool.num_free:
            self._blocked_head, self._blocked_version = request, pool.version
            self._head_stays_blocked = True
            return 0
        if -(-(num_hit_tokens + num_tokens) // size) + extra > pool.num_free:
            self._head_stays_blocked = True
            return 0
        return num_tokens

    def _start(self, plan: StepPlan, request: Request, hit: Hit) -> None:
        """A waiting request begins to run, with what it hit."""
        if hit.pieces:
            self.pool.touch(request, hit)
        num_hit_tokens = hit.num_blocks * self.block_size
        if request.num_preemptions:
            plan.resumed += (request,)
        else:
            plan.new.append(request)
            request.scheduled = self.num_steps
            request.num_cached_tokens = num_hit_tokens
            if request.first_step < 0:  # else its prompt was looked up where its first token comes from
                self.num_cache_queries += request.num_tokens
                self.num_cache_hits += num_hit_tokens
        request.num_computed_tokens = num_hit_tokens
        request.num_blocks = hit.num_blocks
        request.state = PREFILLING
        self.take_seat(request)
        self.prefilling[request] = None

    def take_seat(self, request: Request) -> None:
        """A request begins to run."""
        request.seq = self._num_admitted
        self._num_admitted += 1
        self.running[request] = None

    # -- requests that begin elsewhere ---------------------------------------------------------------------------------

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that a running request with so many computed tokens holds."""
        return -(-num_tokens // self.block_size)

    def has_free_blocks(self, request: Request, num_blocks: int) -> bool:
        """Whether the head of `waiting` gets so many blocks at once; if not, nothing but a release gives them to it."""
        if num_blocks + (self._watermark_blocks if self.running else 0) <= self.pool.num_free:
            return True
        self._blocked_head, self._blocked_version = request, self.pool.version
        self._head_stays_blocked = True
        return False

    def test_head_again(self) -> None:
        """There is another head of `waiting`, which may be admitted."""
        self._head_stays_blocked = False

    def go_on(self, plan: StepPlan, request: Request, budget: int) -> int:  # noqa: ARG002
        """A request that has its first token and the KV of its prompt from elsewhere takes a seat, and gets a token in
        this step like all who decode; returns what it takes of the budget, 0 if that has no room for it.
        """
        computed = request.num_tokens
        self.take_seat(request)
        request.num_hashed_blocks = computed // self.block_size
        if request.path:
            self.pool.enter_shared(request, request.num_hashed_blocks)
        self.decoding.join(request, computed, request.num_prompt_tokens + request.output_len - computed - 1)
        if request.branch is not None and request.branch.shared:
            self.shared_decodes[request] = None
        plan.num_decodes += 1
        plan.num_sampled += 1
        plan.context += computed
        plan.longest = 0 if self.decoding.lengths is None else self.decoding.longest()
        plan.gaps += ((request, request.token_step),)
        return 1

    # -- tokens come in ------------------------------------------------------------------------------------------------

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of a plan; returns the requests that finished, in order of admission. Their blocks and
        seats are free now.
        """
        for request in plan.finishing:
            self._finish(request)
        for request in plan.late:
            if request.state is not FINISHED:
                request.num_tokens += 1
                if request.state is PREFILLING:
                    request.num_hashed_blocks = request.num_computed_tokens // self.block_size
                    self.pool.enter_shared(request, request.num_hashed_blocks)
        return plan.finishing

    def _drain(self, request: Request) -> None:
        """The last token is in flight and `max_tokens` says so: the request gets nothing more, and keeps blocks and
        seat until then.
        """
        self.decoding.leave(request)
        request.num_hashed_blocks = max(request.num_hashed_blocks, (request.num_computed_tokens - 1) // self.block_size)
        request.num_tokens = request.num_computed_tokens
        request.state = DRAINING
        self.shared_decodes.pop(request, None)

    def _finish(self, request: Request) -> None:
        if request.state is DRAINING:
            request.num_hashed_blocks = request.num_computed_tokens // self.block_size
        self._let_go(request)

    def _let_go(self, request: Request) -> None:
        """A request leaves for good, from wherever it stands."""
        state = request.state
        if state is WAITING:
            self.waiting.remove(request)
        else:
            if state is DECODING:
                num_hashed = self.num_hashed_blocks(request)
                self.decoding.leave(request)
                request.num_hashed_blocks = num_hashed
                self.shared_decodes.pop(request, None)
            elif state is PREFILLING:
                # One that has finished was starved by the step after its last, which could not know of the EOS.
                self.prefilling.pop(request, None)
                request.num_hashed_blocks = request.num_computed_tokens // self.block_size
            self.let_go(request)
            del self.running[request]
        request.state = FINISHED
        if request.branch is not None:
            request.branch.owner = None

    def let_go(self, request: Request) -> None:
        """A finished request gives its blocks back, unless they are to be sent first."""
        if self.producer is None or not self.producer.take_over(request):
            self.pool.release(request, may_return=False)

    def abort(self, request: Request) -> None:
        """The client has left: blocks and seat are free for the next `schedule()`, and what was cached stays cached. A
        token in flight (asynchronous scheduling) is dropped, and the block that it would end is not hashed. Nothing
        happens to a request that has finished.

        To be called between `complete` and `schedule`. Source: vLLM 0.32, Scheduler.finish_requests.
        """
        if request.state is FINISHED:
            return
        if self.producer is not None:
            self.producer.forget(request)
        if self.consumer is not None and self.consumer.abort(request):
            return
        plan = self._in_flight
        if plan is not None and plan.finishing:
            plan.finishing = [other for other in plan.finishing if other is not request]
        self._let_go(request)

    # -- runs of equal steps -------------------------------------------------------------------------------------------

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        """How many steps after `plan` only repeat it: every decoding request gets one token, and nothing else can
        happen.

        To be asked when all that is due has been completed (synchronous: `plan` itself, asynchronous: the plan before
        it). An arrival that becomes the head of `waiting` ends the run; cutting a run short is always harmless. The
        answer may be 0 if it is less than `enough`.
        """
        if self.prefilling or (plan.finishing and self._asynchronous):
            return 0  # those who finish give blocks and seats back in the middle of the next step
        decoding = self.decoding
        if not 0 < decoding.count <= self._max_tokens:
            return 0
        num_steps = decoding.next_finish() - decoding.clock
        if num_steps < enough:
            return 0
        if self.waiting and not self._head_stays_blocked:
            return 0
        if self.waiting and (self.shared_decodes or self.pool.version != self._tested_version):
            return 0
        return decoding.steps_within(self.pool.num_free, num_steps)

    def repeat(self, num_steps: int) -> StepPlan:
        """Decide `num_steps` steps at once, at most `steps_ahead`; all but the last, whose plan it returns, are
        complete.
        """
        decoding, pool = self.decoding, self.pool
        pool.take(decoding.blocks_needed(num_steps))
        decoding.clock += num_steps
        for request in self.shared_decodes:
            request.num_hashed_blocks = self.num_hashed_blocks(request)
            pool.enter(request, request.num_hashed_blocks)
        self.num_steps += num_steps
        plan = StepPlan(self.num_steps - 1)
        plan.num_decodes, plan.num_sampled, plan.context = decoding.count, decoding.count, decoding.context
        self._note_tokens(plan)
        return plan
