"""The policy `prefill_first`: prompts before decodes, and never both in one step.

Whenever a prompt can be computed a step takes prompts only, chunks under way first, and everybody's decodes stand
still; else it is a step of decodes. SGLang does so by default (0.5, managers/scheduler.py, get_next_batch_to_run: a new
prefill batch goes before the running batch), and so did vLLM before its V1 engine (0.8, core/scheduler.py,
_schedule_default). All else, who is admitted and who is preempted, follows vLLM's rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.admission import admit
from simserve.engine.plan import StepPlan
from simserve.engine.policies.summed import SummedScheduler
from simserve.engine.request import DECODING
from simserve.engine.scheduler import UNLIMITED
from simserve.engine.walk import Walk

if TYPE_CHECKING:
    from simserve.engine.summed_ledger import SummedLedger


class PrefillFirst(SummedScheduler):
    """Steps of prompts, or steps of decodes."""

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        ledger = self.books
        ledger.num_calls += 1
        plan = StepPlan(ledger.num_steps)
        serve_prompts(ledger, plan, self._max_tokens, self.longest_chunk(), self._num_seats)
        serve_decodes_alone(ledger, plan)
        return ledger.end_step(plan)


def serve_prompts(ledger: SummedLedger, plan: StepPlan, budget: int, threshold: int, num_seats: int) -> None:
    """Go on with the prompts under way, then admit."""
    if ledger.is_held:
        ledger.enter_shared_decodes()  # a token that was in flight may be known now
    if ledger.prefilling:
        walk = Walk(ledger, plan, budget)
        walk.serve_all(list(ledger.prefilling), threshold, until_one_fails=False)
        budget = walk.budget
    if ledger.anyone_waits:
        admit(ledger, plan, budget, threshold, num_seats)


def serve_decodes_alone(ledger: SummedLedger, plan: StepPlan) -> None:
    """Every decoding request gets a token, in a step without prompts."""
    if plan.chunks:
        ledger.hold(plan)
        return
    needed = ledger.decoding.phases[ledger.decoding.clock % ledger.block_size]
    if needed > ledger.pool.num_free:
        decodes = [request for request in ledger.running if request.state is DECODING]
        Walk(ledger, plan, UNLIMITED).serve_all(decodes, UNLIMITED, until_one_fails=False)
    elif needed:
        ledger.pool.take(needed)
    ledger.advance(plan)
