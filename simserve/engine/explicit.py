"""The scheduler with every request visited in every step: for pipelines, in which decodes do not advance in step.

`Scheduler` keeps requests that get one token a step as sums. Where the next step may come before the token of the last
one is known, there is no such common clock: here a request past its prompt is one with a chunk of one token, in the
order and by the rules of the base class. With one plan at a time it decides what `Scheduler` decides under synchronous
scheduling, and with several what recorded pipelines of vLLM decided (tests/test_explicit.py).
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from simserve.engine.request import DRAINING, FINISHED, PREFILLING, Request
from simserve.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.block_pool import Hit
    from simserve.engine.config import SchedulerConfig
    from simserve.engine.observer import PoolObserver
    from simserve.engine.plan import Chunk, StepPlan


class ExplicitScheduler(Scheduler):
    """The policy of `Scheduler`, request by request. Plans may be in flight one behind the other; they complete in
    order.

    A request whose last known token is in a plan in flight is DRAINING: it keeps blocks and seat, and is passed over.
    """

    def __init__(self, config: SchedulerConfig, observer: PoolObserver | None = None) -> None:
        super().__init__(config, observer)
        self._flights: deque[tuple[StepPlan, list[Request], list[Request]]] = deque()
        """Plans whose tokens are not known yet, with all their requests, and those that get a token."""
        self._sampled: list[Request] = []
        """Those that get a token from the step that is being decided."""
        self._num_in_flight: Counter[Request] = Counter()
        """Plans in flight that compute something of a request, whatever has become of it since."""
        self._generating: set[Request] = set()
        """Running requests that were given a token since they were admitted: what they compute next is a decode."""

    def _begin_decoding(self, plan: StepPlan, request: Request) -> None:
        """The step computes the last known token of a request: it gets nothing more until its next one is known."""
        plan.num_sampled += 1
        del self.prefilling[request]
        request.state = DRAINING
        if request.first_step < 0:
            request.first_step = plan.index
        elif request.token_step < plan.index - 1:
            plan.gaps += ((request, request.token_step),)
        request.token_step = plan.index
        self._sampled.append(request)

    def _note_tokens(self, plan: StepPlan) -> None:
        """Decodes are counted as such; only what is left are chunks of prompts, or of what is computed again."""
        if plan.num_sampled:
            self._last_fruitful_step = plan.index
        requests = [chunk.request for chunk in plan.chunks]
        prompts: list[Chunk] = []
        for chunk in plan.chunks:
            if chunk.request in self._generating:
                plan.num_decodes += 1
                plan.context += chunk.history + chunk.num_tokens
                plan.num_prefill_tokens -= chunk.num_tokens
            else:
                prompts.append(chunk)
        plan.chunks = prompts
        if not plan.is_empty:
            self._flights.append((plan, requests, self._sampled))
            self._num_in_flight.update(requests)
        self._sampled = []

    def _admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        """As ever, but who was preempted with something in flight is passed over until that is done: its token may
        belong to what is computed again.
        """
        waiting, in_flight = self.waiting, self._num_in_flight
        passed_over: list[Request] = []
        while True:
            while waiting and in_flight[waiting[0]]:
                passed_over.append(waiting.popleft())
            num_chunks = len(plan.chunks)
            super()._admit(plan, budget, threshold)
            budget -= sum(chunk.num_tokens for chunk in plan.chunks[num_chunks:])
            if not waiting or not in_flight[waiting[0]]:
                break
        for request in reversed(passed_over):
            waiting.appendleft(request)

    def _admissible_tokens(self, request: Request, hit: Hit, budget: int, threshold: int) -> int:
        """As ever; 0 for whom `_admit` passes over."""
        return 0 if self._num_in_flight[request] else super()._admissible_tokens(request, hit, budget, threshold)

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished, in running order."""
        if plan.is_empty:
            return ()
        first, requests, sampled = self._flights.popleft()
        assert first is plan, "plans complete in the order in which they were made"
        for request in requests:
            self._num_in_flight[request] -= 1
            if not self._num_in_flight[request]:
                del self._num_in_flight[request]
        finished = []
        for request in sampled:
            if request.state is FINISHED:  # aborted meanwhile
                continue
            request.num_tokens += 1
            if request.num_tokens - request.num_prompt_tokens >= request.output_len:
                self._finish(request)
                finished.append(request)
            elif request.state is DRAINING:
                request.state = PREFILLING
                self._generating.add(request)
        self.prefilling = {request: None for request in self.running if request.state is PREFILLING}
        return finished

    def go_on(self, plan: StepPlan, request: Request, budget: int) -> int:  # noqa: ARG002
        """A request that has its KV from elsewhere takes a seat: all that it has to compute is its first token."""
        request.num_computed_tokens = request.num_prompt_tokens
        request.state = PREFILLING
        self.take_seat(request)
        self.prefilling[request] = None
        self._generating.add(request)
        return self.schedule_chunk(plan, request, 1)

    def preempt(self, plan: StepPlan, request: Request, was_served: bool) -> None:
        """Take all blocks from a running request and let it wait; its tokens are computed again later."""
        self._generating.discard(request)
        super().preempt(plan, request, was_served)

    def _let_go(self, request: Request) -> None:
        self._generating.discard(request)
        super()._let_go(request)
