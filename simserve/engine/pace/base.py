"""What every pace offers: when steps are decided, and when their tokens are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simserve.cost.step import DecodeCost, StepCost
    from simserve.engine.clock import Clock
    from simserve.engine.counters import Counters
    from simserve.engine.ledger import Ledger
    from simserve.engine.pace.server import Server
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request
    from simserve.engine.scheduler import Scheduler
    from simserve.engine.step_log import StepLog


class Pace(ABC):
    """How time passes on one replica, whose steps take what `cost` says. It alone asks the scheduler to decide."""

    server: Server
    env: Clock
    scheduler: Scheduler
    ledger: Ledger
    log: StepLog

    def __init__(self, cost: StepCost) -> None:
        self.cost = cost
        self._uneven = cost.uneven
        self._decode_costs: dict[int, DecodeCost] = {}
        self._unwritten_preemptions = 0
        """Preemptions of steps that scheduled nothing and so have no row: they count in the next row."""

    def begin(self, server: Server) -> None:
        """The replica is built: begin to serve what it receives."""
        self.server, self.env, self.scheduler = server, server.env, server.scheduler
        self.ledger, self.log = server.scheduler.ledger, server.log
        if self._uneven is not None and server.scheduler.decoding is not None:
            server.scheduler.decoding.keep_lengths()

    @abstractmethod
    def disturb(self) -> None:
        """Something outside has changed what the next step may do: decide it when one is next due."""

    @abstractmethod
    def close(self, horizon: int) -> None:
        """The simulation ends at tick `horizon`: take the steps decided before it, and their tokens."""

    def joined(self, request: Request) -> None:  # noqa: ARG002
        """A request has reached the scheduler."""
        self.disturb()

    @property
    def decides_at(self) -> int:
        """While a step is being decided: the tick at which it is, now or later."""
        return int(self.env.now)

    def plan_in_flight(self) -> StepPlan | None:
        """The plan made last, if its tokens are not known yet."""
        return None

    def tokens_of_flight_known(self) -> int | None:
        """When the tokens of the plan in flight are known, if that is certain."""
        return None

    def counters(self) -> Counters:
        """What it has counted; see `Ledger.counters`."""
        return {"skipped_steps": 0}

    # -- what its steps take -------------------------------------------------------------------------------------------

    def balanced_context(self, plan: StepPlan) -> int:
        """The context by which a step is costed."""
        if self._uneven is None or not plan.num_decodes:
            return plan.context
        return self._uneven.balanced(plan.num_decodes, plan.context, plan.longest, mixed=bool(plan.chunks))

    def decode_cost(self, num_decodes: int) -> DecodeCost:
        """Cost of a step of `num_decodes` decodes and nothing else."""
        cost = self._decode_costs.get(num_decodes)
        if cost is None:
            cost = self._decode_costs[num_decodes] = self.cost.decode(num_decodes)
        return cost

    def num_preempted(self, plan: StepPlan) -> int:
        """Preemptions for the row of a step, those of steps without a row among them."""
        count, self._unwritten_preemptions = len(plan.preempted) + self._unwritten_preemptions, 0
        return count
