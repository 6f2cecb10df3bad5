"""What policies over a `SummedLedger` have in common: how tokens come in, and runs of equal steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.scheduler import Scheduler
from simserve.engine.summed_ledger import SummedLedger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.config import SchedulerConfig
    from simserve.engine.ledger import Fetch
    from simserve.engine.observer import PoolObserver
    from simserve.engine.plan import StepPlan
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
        """How many steps after `plan` only repeat it; see `SummedLedger.steps_ahead`."""
        return self.books.steps_ahead(plan, enough)

    def repeat(self, num_steps: int) -> StepPlan:
        """Decide `num_steps` steps at once; see `SummedLedger.repeat`."""
        return self.books.repeat(num_steps)
