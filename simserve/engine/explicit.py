"""The scheduler with every request visited in every step: for mechanisms under which decodes do not advance in step.

`Scheduler` keeps requests that get one token a step as sums. Where a step may give a request several tokens
(speculation), or where its next step may come before its token is known (pipeline stages), there is no such common
clock: here a request past its prompt is one with a chunk of one token, in the order and by the rules of the base class.
With one plan at a time it decides what `Scheduler` decides under synchronous scheduling, which a test shows.
"""

from __future__ import annotations

from collections import deque
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
        self._flights: deque[tuple[StepPlan, list[Request]]] = deque()
        """Plans whose tokens are not known yet, with the requests that get some."""
        self._sampled: list[Request] = []
        """Those that get a token from the step that is being decided."""
        self._awaiting: dict[Request, None] = {}
        """Requests with a token in flight, whatever has become of them since."""
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
        self._awaiting[request] = None

    def _note_tokens(self, plan: StepPlan) -> None:
        """Decodes are counted as such; only what is left are chunks of prompts, or of what is computed again."""
        if plan.num_sampled:
            self._last_fruitful_step = plan.index
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
            self._flights.append((plan, self._sampled))
        self._sampled = []

    def _admissible_tokens(self, request: Request, hit: Hit, budget: int, threshold: int) -> int:
        """As ever, but a preempted request whose token is in flight waits for it: it belongs to what it computes."""
        if request in self._awaiting:
            return 0
        return super()._admissible_tokens(request, hit, budget, threshold)

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished, in running order."""
        first, sampled = self._flights.popleft()
        assert first is plan, "plans complete in the order in which they were made"
        finished = []
        for request in sampled:
            del self._awaiting[request]
            if request.state is FINISHED:  # aborted meanwhile
                continue
            self._take_in(request)
            if request.num_tokens - request.num_prompt_tokens >= request.output_len:
                self._finish(request)
                finished.append(request)
            elif request.state is DRAINING:
                request.state = PREFILLING
                self._generating.add(request)
        self.prefilling = {request: None for request in self.running if request.state is PREFILLING}
        return finished

    def preempt(self, plan: StepPlan, request: Request, was_served: bool) -> None:
        """Take all blocks from a running request and let it wait; its tokens are computed again later."""
        self._generating.discard(request)
        super().preempt(plan, request, was_served)

    def _let_go(self, request: Request) -> None:
        self._generating.discard(request)
        super()._let_go(request)

    def _take_in(self, request: Request) -> None:
        """What the step has given to a request: one token."""
        request.num_tokens += 1
