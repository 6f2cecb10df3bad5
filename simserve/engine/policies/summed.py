"""What policies over a `SummedLedger` have in common: how tokens come in, and runs of equal steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.plan import StepPlan
from simserve.engine.scheduler import Scheduler
from simserve.engine.summed_ledger import SummedLedger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.config import SchedulerConfig
    from simserve.engine.ledger import Fetch
    from simserve.engine.observer import PoolObserver
    from simserve.engine.request import Request


class SummedScheduler(Scheduler):
    """A policy whose decodes advance in step, or stand still together. `observer` may watch the block pool."""

    def __init__(
        self, config: SchedulerConfig, observer: PoolObserver | None = None, fetch: Fetch | None = None
    ) -> None:
        self.books = SummedLedger(config, observer, fetch)
        """The ledger, as what it is here."""
        super().__init__(config, self.books, self.books.decoding)

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of a plan; returns the requests that finished, in order of admission."""
        return self.books.complete(plan) if plan.finishing or plan.late else ()

    def waits_since(self, request: Request) -> int:
        """The step of the last token of a decoding request that stands still; see `SummedLedger.waits_since`."""
        return self.books.waits_since(request)

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        """How many steps after `plan` only repeat it: every decoding request gets one token, and nothing else can
        happen.

        To be asked when all that is due has been completed (synchronous: `plan` itself, asynchronous: the plan before
        it). An arrival that becomes the head of `waiting` ends the run; cutting a run short is always harmless. The
        answer may be 0 if it is less than `enough`.
        """
        ledger = self.books
        if ledger.prefilling or ledger.is_held or (plan.finishing and self.config.async_scheduling):
            return 0  # those who finish give blocks and seats back in the middle of the next step
        decoding, head = ledger.decoding, ledger.head
        if not 0 < decoding.count <= self._max_tokens:
            return 0
        num_steps = decoding.next_finish() - decoding.clock
        if num_steps < enough:
            return 0
        waits = ledger.waiting or ledger.arrived
        if waits and (not head.is_blocked or ledger.shared_decodes or ledger.pool.version != head.tried):
            return 0
        return decoding.steps_within(ledger.pool.num_free, num_steps)

    def repeat(self, num_steps: int) -> StepPlan:
        """Decide `num_steps` steps at once, at most `steps_ahead`; all but the last, whose plan it returns, are
        complete.
        """
        ledger = self.books
        decoding = ledger.decoding
        ledger.pool.take(decoding.blocks_needed(num_steps))
        decoding.clock += num_steps
        if ledger.shared_decodes:
            ledger.enter_shared_decodes()
        ledger.num_steps += num_steps - 1
        plan = StepPlan(ledger.num_steps)
        plan.num_decodes, plan.num_sampled, plan.context = decoding.count, decoding.count, decoding.context
        return ledger.end_step(plan)
