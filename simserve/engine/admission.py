"""Admission from the head of the queue: first come first served, or the most important first.

Source: vLLM 0.32, Scheduler.schedule, the loop over waiting requests: a head that fails blocks those behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.block_pool import MISS

if TYPE_CHECKING:
    from simserve.engine.block_pool import Hit
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request
    from simserve.engine.summed_ledger import SummedLedger


def admit(ledger: SummedLedger, plan: StepPlan, budget: int, threshold: int, num_seats: int) -> None:
    """Admit while budget, seats and blocks last; nobody in a step that has preempted someone."""
    waiting, arrived, pool, head = ledger.waiting, ledger.arrived, ledger.pool, ledger.head
    head.is_blocked = False
    if not plan.preempted:
        while budget > 0 and (waiting or arrived):
            if len(ledger.running) >= num_seats:
                head.is_blocked = True
                break
            request = ledger.first_waiting() if arrived else waiting[0]
            if request is head.without_room and pool.version == head.version:
                head.is_blocked = True
                break
            if arrived:
                ledger.decode(plan, request)
                budget -= 1
            elif request in ledger.to_load:
                if not ledger.load(request):
                    break
            else:
                hit = pool.lookup(request) if request.path else MISS
                num_tokens = _admissible_tokens(ledger, request, hit, budget, threshold)
                if not num_tokens:
                    break
                ledger.start(plan, request, hit)
                budget -= ledger.compute(plan, request, num_tokens)
    head.tried = pool.version


def _admissible_tokens(ledger: SummedLedger, request: Request, hit: Hit, budget: int, threshold: int) -> int:
    """Tokens that the head of `waiting` may get in this step; 0 if it must go on waiting."""
    num_tokens = min(request.num_tokens - hit.num_blocks * ledger.block_size, threshold)
    if num_tokens > budget:
        if not ledger.config.enable_chunked_prefill:
            return 0
        num_tokens = budget
    return num_tokens if ledger.has_room(request, hit, num_tokens) else 0
