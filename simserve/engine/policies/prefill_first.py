"""The policy `prefill_first`: prompts before decodes, and never both in one step.

Whenever a prompt can be computed a step takes prompts only, chunks under way first, and everybody's decodes wait; else
it is a step of decodes. SGLang does so by default (0.5, managers/scheduler.py, get_next_batch_to_run: a new prefill
batch goes before the running batch), and so did vLLM before its V1 engine (0.8, core/scheduler.py, _schedule_default).
All else, who is admitted and who is preempted, follows vLLM's rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.plan import StepPlan
from simserve.engine.request import DECODING
from simserve.engine.scheduler import UNLIMITED, Scheduler
from simserve.engine.walk import choose_victim, serve, wants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simserve.engine.config import SchedulerConfig
    from simserve.engine.observer import PoolObserver
    from simserve.engine.request import Request


class PrefillFirstScheduler(Scheduler):
    """Steps of prompts, or steps of decodes. The decode clock stands still while decodes wait."""

    def __init__(self, config: SchedulerConfig, observer: PoolObserver | None = None) -> None:
        super().__init__(config, observer)
        self._decodes_wait = False
        self._last_decode_step = -1
        """The step before those for which decodes have been waiting."""

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        plan = StepPlan(self.num_steps)
        self.num_calls += 1
        self._schedule_prompts(plan)
        if plan.chunks:
            if self.decoding.count and not self._decodes_wait:
                self._decodes_wait, self._last_decode_step = True, plan.index - 1
            for chunk in plan.chunks:
                if chunk.completes:
                    self._begin_decoding(plan, chunk.request)
        else:
            self._schedule_decodes(plan)
        if not plan.is_empty:
            self.num_steps += 1
        self._note_tokens(plan)
        return plan

    def _schedule_prompts(self, plan: StepPlan) -> None:
        """Go on with the prompts under way, then admit."""
        budget, threshold = self._max_tokens, self._threshold
        if len(self.running) + len(self.waiting) == 1:
            threshold = UNLIMITED
        if self._decodes_wait:
            self._enter_shared_decodes()  # a token that was in flight may be known now
        if self.prefilling:
            budget = self._serve(plan, list(self.prefilling), budget, threshold)
        if self.waiting:
            self._admit(plan, budget, threshold)
            self._tested_version = self.pool.version

    def _schedule_decodes(self, plan: StepPlan) -> None:
        """Every decoding request gets a token."""
        decoding, pool = self.decoding, self.pool
        needed = decoding.phases[decoding.clock % self.block_size]
        if needed > pool.num_free:
            self._serve(plan, [r for r in self.running if r.state is DECODING], UNLIMITED, UNLIMITED)
        elif needed:
            pool.take(needed)
        decoding.clock += 1
        plan.num_decodes = plan.num_sampled = decoding.count
        if not decoding.count:
            return
        plan.context = decoding.context
        plan.longest = 0 if decoding.lengths is None else decoding.longest()
        self._enter_shared_decodes()
        if self._decodes_wait:
            self._end_gaps(plan)

    def _enter_shared_decodes(self) -> None:
        for request in self.shared_decodes:
            request.num_hashed_blocks = self.num_hashed_blocks(request)
            self.pool.enter(request, request.num_hashed_blocks)

    def _serve(self, plan: StepPlan, requests: Iterable[Request], budget: int, threshold: int) -> int:
        """Serve running requests one by one, preempting for blocks; returns the budget that is left."""
        served: dict[Request, int] = {}
        for request in requests:
            if budget <= 0:
                break
            if request not in self.running:
                continue
            num_tokens, needed = wants(self, request, min(threshold, budget))
            while needed > self.pool.num_free and request in self.running:
                victim = choose_victim(self)
                given = served.pop(victim, 0)
                budget += given
                self.preempt(plan, victim, was_served=given > 0)
            if request in self.running:
                served[request] = num_tokens
                budget -= num_tokens
                serve(self, plan, request, num_tokens, needed)
        return budget

    # -- decodes that wait ---------------------------------------------------------------------------------------------

    def _begin_decoding(self, plan: StepPlan, request: Request) -> None:
        super()._begin_decoding(plan, request)
        request.token_step = plan.index

    def _end_gaps(self, plan: StepPlan) -> None:
        """Those who waited for prompts get a token again."""
        for request in self.running:
            if request.state is DECODING:
                request.num_hashed_blocks = self.num_hashed_blocks(request)
                step = self._step_of_last_token(request)
                if step < plan.index - 1:
                    plan.gaps += ((request, step),)
        self._decodes_wait = False

    def _step_of_last_token(self, request: Request) -> int:
        """The step that gave a decoding request its last token, before the one that is being decided."""
        return max(self._last_decode_step, request.token_step) if self._decodes_wait else self.num_steps - 1

    def waits_since(self, request: Request) -> int:
        """The step of the last token of a decoding request that waits for prompts, if that token is known; else -1."""
        if not self._decodes_wait:
            return -1
        step, flight = self._step_of_last_token(request), self._in_flight
        return step if flight is None or step < flight.index else -1

    def _knows_last_token(self, request: Request) -> bool:
        """Whether the token is known of which asynchronous scheduling would think that it is in flight."""
        return self._in_flight is not None and self.waits_since(request) >= 0

    def num_hashed_blocks(self, request: Request, ahead: int = 0) -> int:
        """Leading blocks of a decoding request that are hashed: up to its last known token."""
        if not self._knows_last_token(request):
            return super().num_hashed_blocks(request, ahead)
        computed = self.decoding.clock - request.base + ahead
        return max(computed // self.block_size, request.num_hashed_blocks)

    def _leave_decoding(self, request: Request, ahead: int) -> None:
        step, is_known = self._step_of_last_token(request), self._knows_last_token(request)
        super()._leave_decoding(request, ahead)
        request.token_step = step
        if is_known:
            assert self._in_flight is not None
            self._in_flight.late = tuple(late for late in self._in_flight.late if late is not request)
            request.num_tokens += 1

    # -- runs of equal steps -------------------------------------------------------------------------------------------

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        """As ever; the step after prompts is none of them, as it ends the gaps of those who waited."""
        return 0 if self._decodes_wait else super().steps_ahead(plan, enough)
