"""The walk over `running`, for the steps in which its order matters: who gets blocks and budget, and who pays for it.

Source of the rules: vLLM 0.32, Scheduler.schedule, the loop over running requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.request import DECODING, DRAINING

if TYPE_CHECKING:
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request
    from simserve.engine.scheduler import Scheduler


def walk(scheduler: Scheduler, plan: StepPlan, budget: int, threshold: int) -> int:
    """Serve the running requests one by one, preempting for blocks; returns the budget that is left."""
    irregular = scheduler.prefilling or scheduler.by_priority or scheduler.shared_decodes
    if not irregular and scheduler.decoding.count <= budget:
        return _walk_short_of_blocks(scheduler, plan, budget)
    served: dict[Request, int] = {}
    pool, running = scheduler.pool, scheduler.running
    for request in list(running):
        if budget <= 0:
            break
        if request.state is DRAINING or request not in running:
            continue
        num_tokens, needed = wants(scheduler, request, min(threshold, budget))
        while needed > pool.num_free and request in running:
            victim = choose_victim(scheduler)
            given = served.pop(victim, 0)
            budget += given
            scheduler.preempt(plan, victim, was_served=given > 0)
        if request not in running:
            break
        served[request] = num_tokens
        budget -= num_tokens
        serve(scheduler, plan, request, num_tokens, needed)
    for request in [request for request in running if request.state is DECODING and request not in served]:
        scheduler.starve(plan, request)
    return budget


def wants(scheduler: Scheduler, request: Request, limit: int) -> tuple[int, int]:
    """Tokens that a running request takes in this step, and the new blocks they need."""
    size = scheduler.block_size
    if request.state is DECODING:
        return 1, int((scheduler.decoding.clock - request.base) % size == 0)
    num_tokens = min(request.num_tokens - request.num_computed_tokens, limit)
    return num_tokens, -(-(request.num_computed_tokens + num_tokens) // size) - request.num_blocks


def serve(scheduler: Scheduler, plan: StepPlan, request: Request, num_tokens: int, needed: int) -> None:
    """Give a running request these tokens and their new blocks."""
    if request.state is not DECODING:
        scheduler.schedule_chunk(plan, request, num_tokens)
        return
    scheduler.pool.take(needed)
    if request in scheduler.shared_decodes:
        scheduler.pool.enter(request, scheduler.num_hashed_blocks(request, ahead=1))


def _walk_short_of_blocks(scheduler: Scheduler, plan: StepPlan, budget: int) -> int:
    """The same, where all decode and only blocks are short: none but those at the end of a block need looking at.

    First come first served, the victim is the last of `running`, which has not been served yet.
    """
    pool, running, size = scheduler.pool, scheduler.running, scheduler.block_size
    phase = scheduler.decoding.clock % size
    for request in [r for r in running if r.state is DECODING and r.base % size == phase]:
        while not pool.num_free and request.state is DECODING:
            scheduler.preempt(plan, next(reversed(running)), was_served=False)
        if request.state is not DECODING:
            break
        pool.take(1)
    return budget - scheduler.decoding.count


def choose_victim(scheduler: Scheduler) -> Request:
    """By priority the least important, the latest among equals; otherwise the one admitted last."""
    if scheduler.by_priority:
        return max(scheduler.running, key=lambda request: (request.priority, request.arrival))
    return next(reversed(scheduler.running))
