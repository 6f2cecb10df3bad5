"""The policy `vllm_v1`: prompts and decodes in one step, running requests first, then the queue from its head.

Rules: vLLM 0.32, v1/core/sched/scheduler.py and async_scheduler.py, proven on recorded traces (`simserve fidelity
tests/golden`). Who gets one token a step, nearly everybody, is not visited; the same rules request by request are
`simserve.engine.request_wise` and `tests/oracle.py`.
"""

from __future__ import annotations

from simserve.engine.admission import admit
from simserve.engine.plan import StepPlan
from simserve.engine.policies.summed import SummedScheduler
from simserve.engine.scheduler import UNLIMITED
from simserve.engine.walk import walk


class VllmV1(SummedScheduler):
    """vLLM's own scheduler, its V1 engine's."""

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        ledger = self.books
        decoding, pool = ledger.decoding, ledger.pool
        ledger.num_calls += 1
        plan, budget, threshold = StepPlan(ledger.num_steps), self._max_tokens, self._threshold
        if threshold is not UNLIMITED:
            threshold = self.longest_chunk()
        num_decodes, needed = decoding.count, decoding.phases[decoding.clock % ledger.block_size]
        if (
            needed > pool.num_free
            or num_decodes > budget
            or (ledger.prefilling and not self._fits(needed, budget, threshold))
        ):
            budget = walk(ledger, plan, budget, threshold)
        else:
            if needed:
                pool.take(needed)
            budget -= num_decodes
            for request in ledger.prefilling:
                wanted = min(request.num_tokens - request.num_computed_tokens, threshold, budget)
                budget -= ledger.compute(plan, request, wanted)
        ledger.advance(plan)
        if ledger.waiting or ledger.arrived:
            admit(ledger, plan, budget, threshold, self._num_seats)
        return ledger.end_step(plan)

    def _fits(self, needed: int, budget: int, threshold: int) -> bool:
        """Whether the chunks can be served without regard to the order of `running`: none is cut short before a later
        request's turn. `needed`: blocks that the decodes need.
        """
        ledger = self.books
        if ledger.shared_decodes:
            return False
        budget -= ledger.decoding.count
        last = next(reversed(ledger.running))
        for request in ledger.prefilling:
            num_tokens = min(request.num_tokens - request.num_computed_tokens, threshold)
            if num_tokens > budget:
                if request is not last or not budget:
                    return False
                num_tokens = budget
            budget -= num_tokens
            needed += -(-(request.num_computed_tokens + num_tokens) // ledger.block_size) - request.num_blocks
        return needed <= ledger.pool.num_free
