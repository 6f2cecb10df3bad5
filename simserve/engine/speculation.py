"""The scheduler under speculative decoding: a request past its prompt computes its last token and some drafts after it.

What is verified in a step, 1 + drafts tokens a request, goes through the model at once; of the drafts some are accepted
in a row, and one token follows them for sure. Rejected drafts are taken back from the computed tokens, their blocks are
kept for what comes. Rules: vLLM 0.32, Scheduler.schedule and update_from_output, AsyncScheduler.

With asynchronous scheduling the next step is decided as if every draft in flight were accepted: `num_placeholders`
tokens of a request are scheduled and not known yet. What was decided ahead for a request that turns out to have ended
is computed for nothing.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from simserve.engine.eagle_pool import EagleBlockPool
from simserve.engine.plan import Chunk, StepPlan
from simserve.engine.request import FINISHED, PREFILLING, WAITING, Request
from simserve.engine.scheduler import UNLIMITED, Scheduler
from simserve.engine.walk import choose_victim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.acceptance import Acceptance
    from simserve.engine.block_pool import Hit
    from simserve.engine.config import SchedulerConfig
    from simserve.engine.counters import Counters
    from simserve.engine.observer import PoolObserver


class Speculation(NamedTuple):
    """What the scheduler is told of the drafter, with vLLM's names.

    `num_lookahead_tokens`: blocks are held for so many tokens more than a step computes, where the drafter writes its
    own KV. `max_num_new_slots_for_drafting`: tokens of a step's budget that each request costs beside its own.
    `use_eagle`: the drafter reads hidden states. `needs_match`: it proposes nothing unless it finds a match.
    """

    num_speculative_tokens: int
    num_lookahead_tokens: int
    max_num_new_slots_for_drafting: int
    use_eagle: bool
    needs_match: bool


def speculation_by(method: str, num_speculative_tokens: int) -> Speculation:
    """What `method`, one of ngram, draft_model, eagle and mtp, means to the scheduler (vLLM 0.32, config/vllm.py and
    config/speculative.py).
    """
    return Speculation(
        num_speculative_tokens,
        num_lookahead_tokens=0 if method == "ngram" else num_speculative_tokens,
        max_num_new_slots_for_drafting=int(method == "draft_model"),
        use_eagle=method in {"eagle", "mtp"},
        needs_match=method == "ngram",
    )


class Progress:
    """How far a running request is ahead of its known tokens: gone with its seat.

    `num_drafts` wait to be verified; `num_placeholders` tokens are in flight; `is_generating` once it is past its
    prompt.
    """

    __slots__ = ("is_generating", "num_drafts", "num_placeholders")

    def __init__(self) -> None:
        self.num_drafts = self.num_placeholders = 0
        self.is_generating = False


class Verification:
    """A request that gets tokens from a step, and the drafts that the step verifies for it: right or wrong ones, or
    padding that stands for nothing.
    """

    __slots__ = ("is_padding", "num_drafts", "progress", "request")

    def __init__(self, request: Request, progress: Progress, num_drafts: int) -> None:
        self.request = request
        self.progress = progress
        self.num_drafts = num_drafts
        self.is_padding = num_drafts > 0 and not progress.is_generating


class Counts:
    """vLLM's counters (v1/spec_decode/metrics.py): drafts proposed and verified, their tokens, and those accepted."""

    def __init__(self, num_speculative_tokens: int) -> None:
        self.num_drafts = self.num_draft_tokens = self.num_accepted_tokens = 0
        self.num_accepted_tokens_per_pos = [0] * num_speculative_tokens

    def observe(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """One request in one step; without drafts it does not count."""
        if not num_draft_tokens:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_accepted_tokens += num_accepted_tokens
        for position in range(num_accepted_tokens):
            self.num_accepted_tokens_per_pos[position] += 1


class SpeculativeScheduler(Scheduler):
    """The policy of `Scheduler` with drafts to verify; every request is visited in every step.

    In its plans the first `num_decodes` of `chunks` are verifications, of a request's last token and its drafts;
    `context` are the tokens of KV that they read.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        speculation: Speculation,
        acceptance: Acceptance,
        observer: PoolObserver | None = None,
    ) -> None:
        super().__init__(config, observer)
        if speculation.use_eagle:
            self.pool = EagleBlockPool(config.num_gpu_blocks, config.block_size, config.enable_prefix_caching, observer)
        self.speculation = speculation
        self.counts = Counts(speculation.num_speculative_tokens)
        self.draft_tokens = array("q")
        """Drafts that each step verified."""
        self.output_tokens = array("q")
        """Tokens that each step gave."""
        self._acceptance = acceptance
        self._lookahead = speculation.num_lookahead_tokens
        self._slots = speculation.max_num_new_slots_for_drafting
        self._progress: dict[Request, Progress] = {}
        self._flights: deque[tuple[StepPlan, list[Verification]]] = deque()
        """Plans whose tokens are not known yet."""
        self._serves_prompts = self._serves_anyone = False
        """Whether the step that is being decided has a running request with a prompt to compute, and any at all."""

    def counters(self) -> Counters:
        """Those of any scheduler, and of the drafts."""
        counts = self.counts
        return super().counters() | {
            "spec_decode_num_drafts": counts.num_drafts,
            "spec_decode_draft_tokens": counts.num_draft_tokens,
            "spec_decode_accepted_tokens": counts.num_accepted_tokens,
            "spec_decode_accepted_tokens_per_position": counts.num_accepted_tokens_per_pos,
        }

    def step_columns(self) -> dict[str, array[int]]:
        """Drafts that each step verified, and tokens that it gave."""
        return {"draft_tokens": self.draft_tokens, "output_tokens": self.output_tokens}

    # -- one step ------------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        plan = StepPlan(self.num_steps)
        self.num_calls += 1
        threshold = self._threshold
        if threshold is not UNLIMITED and len(self.running) + len(self.waiting) == 1:
            threshold = UNLIMITED
        budget = self._serve_running(plan, threshold)
        if self.waiting:
            self._admit(plan, budget, threshold)
        if plan.chunks:
            self.num_steps += 1
            self._note_tokens(plan)
        return plan

    def _serve_running(self, plan: StepPlan, threshold: int) -> int:
        """Serve the running requests one by one, preempting for blocks; returns the budget that is left."""
        pool, running, slots = self.pool, self.running, self._slots
        budget = self._max_tokens
        served: dict[Request, int] = {}
        self._serves_prompts = self._serves_anyone = False
        for request in list(running):
            if budget <= slots:
                break
            if request not in running:
                continue
            num_tokens = self._wanted(request, min(threshold, budget - slots))
            if num_tokens <= 0:
                continue
            needed = self._blocks_needed(request, num_tokens)
            while needed > pool.num_free and request in running:
                victim = choose_victim(self)
                budget += served.pop(victim, 0)
                self.preempt(plan, victim, was_served=False)
            if request not in running:
                break
            self._serves_anyone = True
            self._serves_prompts = self._serves_prompts or not self._progress[request].is_generating
            served[request] = taken = self.schedule_chunk(plan, request, num_tokens)
            budget -= taken
        return budget

    def _wanted(self, request: Request, limit: int) -> int:
        """Tokens that a running request takes in this step: what it has computed stays below `max_model_len`."""
        progress, computed = self._progress[request], request.num_computed_tokens
        ahead = progress.num_placeholders
        if ahead and computed + 2 - ahead >= request.num_prompt_tokens + request.max_tokens:
            return 0  # what is in flight is the end of it, even if all drafts are rejected
        wanted = request.num_tokens + progress.num_drafts + ahead - computed
        return min(wanted, limit, self.config.max_model_len - computed - 1)

    def _blocks_needed(self, request: Request, num_tokens: int) -> int:
        return max(0, self.num_blocks_for(request.num_computed_tokens + num_tokens) - request.num_blocks)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens and what the drafter writes after them."""
        return -(-min(num_tokens + self._lookahead, self.config.max_model_len) // self.block_size)

    def schedule_chunk(self, plan: StepPlan, request: Request, num_tokens: int) -> int:
        """Give a request its tokens and their blocks; returns what it takes of the budget."""
        needed = self._blocks_needed(request, num_tokens)
        if needed:
            self.pool.take(needed)
            request.num_blocks += needed
        history = request.num_computed_tokens
        request.num_computed_tokens = computed = history + num_tokens
        num_known = request.num_tokens
        self._enter(request, min(computed, num_known))
        completes = computed >= num_known + self._progress[request].num_placeholders
        plan.chunks.append(Chunk(request, num_tokens, history, completes))
        return num_tokens + self._slots

    def _enter(self, request: Request, num_tokens: int) -> None:
        """The first `num_tokens` tokens of a request are computed for good: their full blocks can be hit."""
        request.num_hashed_blocks = max(request.num_hashed_blocks, num_tokens // self.block_size)
        if request.path:
            self.pool.enter_shared(request, request.num_hashed_blocks)

    def _note_tokens(self, plan: StepPlan) -> None:
        """Verifications first, as such; what each of them verifies goes into flight with the plan."""
        prompts: list[Chunk] = []
        verified: list[Chunk] = []
        sampled: list[Verification] = []
        num_drafts = 0
        for chunk in plan.chunks:
            request = chunk.request
            progress = self._progress[request]
            is_verified = progress.is_generating
            if chunk.completes:
                verification = self._begin_verifying(plan, request, progress)
                sampled.append(verification)
                num_drafts += verification.num_drafts
                is_verified = is_verified or verification.is_padding
            if is_verified:
                verified.append(chunk)
                plan.context += chunk.history + chunk.num_tokens
            else:
                prompts.append(chunk)
                plan.num_prefill_tokens += chunk.num_tokens
        plan.num_decodes, plan.num_sampled = len(verified), len(sampled)
        plan.chunks = verified + prompts
        self._flights.append((plan, sampled))
        self.draft_tokens.append(num_drafts)
        if sampled:
            self._last_fruitful_step = plan.index

    def _begin_verifying(self, plan: StepPlan, request: Request, progress: Progress) -> Verification:
        """The step computes the last known token of a request and the drafts after it."""
        if request.first_step < 0:
            request.first_step = plan.index
        elif request.token_step < plan.index - 1:
            plan.gaps += ((request, request.token_step),)
        request.token_step = plan.index
        num_drafts = request.num_computed_tokens - request.num_tokens - progress.num_placeholders
        verification = Verification(request, progress, num_drafts)
        progress.is_generating, progress.num_drafts = True, 0
        if self._asynchronous:
            progress.num_placeholders += 1 + num_drafts
            progress.num_drafts = self.speculation.num_speculative_tokens
        return verification

    # -- admission -----------------------------------------------------------------------------------------------------

    def _admissible_tokens(self, request: Request, hit: Hit, budget: int, threshold: int) -> int:
        """Tokens that the head of `waiting` may get in this step; 0 if it must go on waiting."""
        size, pool, limit = self.block_size, self.pool, budget - self._slots
        if limit <= 0 or (request.num_preemptions and self._is_in_flight(request)):
            return 0
        num_hit_tokens = hit.num_blocks * size
        wanted = request.num_tokens - num_hit_tokens
        if self._can_be_padded(wanted, num_hit_tokens):
            wanted += self.speculation.num_speculative_tokens
            if wanted > limit:
                return 0
        num_tokens = min(wanted, threshold)
        if num_tokens > limit:
            if not self.config.enable_chunked_prefill:
                return 0
            num_tokens = limit
        extra = hit.num_free - hit.num_blocks + (self._watermark_blocks if self.running else 0)
        if self.config.scheduler_reserve_full_isl and -(-request.num_tokens // size) + extra > pool.num_free:
            self._blocked_head, self._blocked_version = request, pool.version
            return 0
        if self.num_blocks_for(num_hit_tokens + num_tokens) + extra > pool.num_free:
            return 0
        return num_tokens

    def _can_be_padded(self, wanted: int, num_hit_tokens: int) -> bool:
        """Whether a new request with one token to compute gets drafts that stand for nothing, so that a step of decodes
        stays uniform and keeps its CUDA graph.
        """
        num_drafts = self.speculation.num_speculative_tokens
        if wanted != 1 or not num_drafts or self._serves_prompts or self._threshold <= num_drafts:
            return False
        anyone = self._serves_anyone or num_hit_tokens > 0
        return anyone and num_hit_tokens + num_drafts + 2 <= self.config.max_model_len

    def _start(self, plan: StepPlan, request: Request, hit: Hit) -> None:
        super()._start(plan, request, hit)
        self._progress[request] = Progress()

    def go_on(self, plan: StepPlan, request: Request, budget: int) -> int:
        """A request that has its KV from elsewhere takes a seat. Its first drafts are proposed with the token that this
        step gives it; until then it is padded, if blocks and budget allow.
        """
        limit, num_drafts = budget - self._slots, self.speculation.num_speculative_tokens
        if limit <= 0:
            return 0
        request.num_computed_tokens = computed = request.num_prompt_tokens
        fits = 1 + num_drafts <= limit and self._blocks_needed(request, 1 + num_drafts) <= self.pool.num_free
        if not fits or not self._can_be_padded(1, computed):
            num_drafts = 0
        request.state = PREFILLING
        self.take_seat(request)
        self.prefilling[request] = None
        progress = self._progress[request] = Progress()
        progress.is_generating = not num_drafts  # drafts of one that is not are padding
        return self.schedule_chunk(plan, request, 1 + num_drafts)

    def _is_in_flight(self, request: Request) -> bool:
        """Whether something of a preempted request is still to come: its token belongs to what it computes again."""
        return any(chunk.request is request for plan, _ in self._flights for chunk in plan.chunks)

    # -- tokens come in ------------------------------------------------------------------------------------------------

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished, in running order."""
        if plan.is_empty:
            return ()
        first, sampled = self._flights.popleft()
        assert first is plan, "plans complete in the order in which they were made"
        finished: list[Request] = []
        num_tokens = 0
        for verification in sampled:
            request = verification.request
            if request.state is FINISHED:  # aborted meanwhile, or ended by the step before
                continue
            before = request.num_tokens
            self._take_in(verification)
            num_tokens += request.num_tokens - before
            if request.num_tokens - request.num_prompt_tokens >= request.output_len:
                self._finish(request)
                finished.append(request)
        self.output_tokens.append(num_tokens)
        return finished

    def _take_in(self, verification: Verification) -> None:
        """A request gets the drafts that were right and one token more, up to the end of its answer. A token of a
        request that was preempted meanwhile is its own all the same.
        """
        request, progress, num_drafts = verification.request, verification.progress, verification.num_drafts
        accepted = 0 if verification.is_padding else self._acceptance.num_accepted(request, num_drafts)
        self.counts.observe(num_drafts, accepted)
        missing = request.num_prompt_tokens + request.output_len - request.num_tokens
        num_tokens = min(1 + accepted, missing)
        request.num_tokens += num_tokens
        if self._progress.get(request) is not progress:
            return
        request.num_computed_tokens -= num_drafts - accepted
        if self._asynchronous:
            progress.num_placeholders -= num_drafts - accepted + num_tokens
            self._enter(request, request.num_computed_tokens - progress.num_placeholders)
        elif not self.speculation.needs_match or self._acceptance.finds_match(request):
            progress.num_drafts = self.speculation.num_speculative_tokens

    # -- requests that lose their turn ---------------------------------------------------------------------------------

    def preempt(self, plan: StepPlan, request: Request, was_served: bool) -> None:
        """Take all blocks from a running request and let it wait; its drafts are forgotten."""
        super().preempt(plan, request, was_served)
        plan.num_prefill_tokens = 0  # counted when all chunks are known
        del self._progress[request]

    def _let_go(self, request: Request) -> None:
        """A request leaves for good; only what was entered while it ran can be hit."""
        self._progress.pop(request, None)
        if request.state is WAITING:
            self.waiting.remove(request)
        else:
            del self.prefilling[request]
            self.let_go(request)
            del self.running[request]
        request.state = FINISHED
        if request.branch is not None:
            request.branch.owner = None

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:  # noqa: ARG002
        """None: no step repeats the one before."""
        return 0
