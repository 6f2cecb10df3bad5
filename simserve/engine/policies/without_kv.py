"""Decoding without a KV cache (`engine.kv_allocation: none`): every token computes its whole text again.

So does Hugging Face's `generate` with `use_cache=False`, and every model before anyone cached keys and values. A step
takes whole texts, of those first that have waited longest for a token; their keys and values need room while the step
lasts, and nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.block_pool import MISS, BlockPool
from simserve.engine.ledger import Ledger
from simserve.engine.plan import StepPlan
from simserve.engine.request import FINISHED
from simserve.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.config import SchedulerConfig
    from simserve.engine.request import Request


class WithoutKv(Scheduler):
    """Whole texts, step by step; admission follows vLLM's rules. Nobody is preempted: there is nothing to take away."""

    def __init__(self, config: SchedulerConfig) -> None:
        pool = BlockPool(config.num_gpu_blocks, config.block_size, enable_prefix_caching=False)
        super().__init__(config, Ledger(config, pool))

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        ledger = self.ledger
        ledger.num_calls += 1
        plan, budget = StepPlan(ledger.num_steps), self._max_tokens
        for request in sorted(ledger.running, key=lambda running: running.token_step):
            if request.num_tokens <= budget and ledger.num_blocks_for(request.num_tokens) <= ledger.pool.num_free:
                budget -= ledger.compute(plan, request, request.num_tokens)
        while ledger.waiting and len(ledger.running) < self._num_seats:
            request = ledger.first_waiting()
            if request.num_tokens > budget or not ledger.has_room(request, MISS, request.num_tokens):
                break
            ledger.start(plan, request, MISS)
            budget -= ledger.compute(plan, request, request.num_tokens)
        if plan.chunks:
            ledger.num_steps += 1
            self._note_tokens(plan)
        return plan

    def _note_tokens(self, plan: StepPlan) -> None:
        plan.num_sampled = len(plan.chunks)
        self.ledger.last_fruitful_step = plan.index
        for chunk in plan.chunks:
            request = chunk.request
            if request.first_step < 0:
                request.first_step = plan.index
            elif request.token_step < plan.index - 1:
                plan.gaps += ((request, request.token_step),)
            request.token_step = plan.index

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of a plan and forget its keys and values; returns the requests that finished."""
        finished = []
        for chunk in plan.chunks:
            request = chunk.request
            if request.state is FINISHED:  # aborted meanwhile
                continue
            request.num_tokens += 1
            self.ledger.forget_kv(request)
            if request.num_tokens - request.num_prompt_tokens >= request.output_len:
                self.ledger.leave(request)
                finished.append(request)
        return finished
