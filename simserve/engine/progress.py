"""How far a request had come that did not finish: aborted, or still there when the run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simserve.engine.request import DECODING, DRAINING, Request
from simserve.engine.step_log import FINISH_FIELDS

if TYPE_CHECKING:
    from simserve.engine.plan import StepPlan
    from simserve.engine.scheduler import Scheduler

PROGRESS_FIELDS: Final = (*FINISH_FIELDS, "output_len")
"""Those of a finish, as far as they exist (-1), and the number of tokens that the engine knows of."""


def progress(request: Request, scheduler: Scheduler, in_flight: StepPlan | None) -> list[int]:
    """A row of `PROGRESS_FIELDS`; what the plan in flight (asynchronous scheduling) would bring does not count."""
    num_tokens = _num_output_tokens(request, scheduler, in_flight)
    first, last = (request.first_step, _last_step(request, scheduler, in_flight)) if num_tokens else (-1, -1)
    return [
        int(request.id),
        request.scheduled,
        first,
        last,
        request.num_cached_tokens,
        request.num_preemptions,
        num_tokens,
    ]


def _num_output_tokens(request: Request, scheduler: Scheduler, in_flight: StepPlan | None) -> int:
    if request.state is DECODING:
        computed = scheduler.ledger.num_computed_tokens(request)
        is_known = in_flight is None or scheduler.waits_since(request) >= 0
        return computed - request.num_prompt_tokens + int(is_known)
    return request.num_tokens - request.num_prompt_tokens


def _last_step(request: Request, scheduler: Scheduler, in_flight: StepPlan | None) -> int:
    """Number of the step of its last token."""
    if request.state is not DECODING and request.state is not DRAINING:
        return request.token_step
    if scheduler.waits_since(request) >= 0:
        return scheduler.waits_since(request)
    if in_flight is None:
        return scheduler.ledger.num_steps - 1 if request.state is DECODING else request.token_step
    for resumed, step_before in in_flight.gaps:
        if resumed is request:
            return step_before
    return in_flight.index - 1
