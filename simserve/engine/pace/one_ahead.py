"""The clock of an engine that decides at most one step ahead of its GPU.

Time is in ticks. With synchronous scheduling a step begins when the one before it has ended. With asynchronous
scheduling, vLLM's default, two steps are in flight (A: decided, E: the GPU is done, k: number of the step):

    A_k = max(A_{k-1} + cpu_{k-1}, E_{k-2} + update)        E_k = max(E_{k-1} + gpu_k, A_k + latency_k)

and the engine knows the tokens of step k at max(E_k, A_{k+1} + cpu_{k+1}). Whatever arrives at exactly A_k is seen by
step k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.pace.base import Pace
from simserve.engine.step_log import FIRST_TOKEN_TIME

if TYPE_CHECKING:
    from simserve.cost.step import StepCost
    from simserve.engine.pace.server import Server
    from simserve.engine.plan import StepPlan


class OneAhead(Pace):
    """A pace with one plan in flight, if scheduling is asynchronous, and none otherwise."""

    def __init__(self, cost: StepCost) -> None:
        super().__init__(cost)
        self._asynchronous = False
        self._ready = 0
        """When the next step can be decided: A_{k+1}."""
        self._end = 0
        """When the GPU finishes the step decided last: E_k."""
        self._in_flight: StepPlan | None = None
        """Asynchronous: the plan decided last, if it has tokens."""
        self._row: list[int] = []
        """Its row, which the step log gets when its tokens are known."""
        self._stalled = False
        """Nothing runs and the head of `waiting` cannot be admitted: only an arrival can change that."""

    def begin(self, server: Server) -> None:
        """The replica is built: begin to serve what it receives."""
        super().begin(server)
        self._asynchronous = server.scheduler.config.async_scheduling

    @property
    def decides_at(self) -> int:
        """While a step is being decided: the tick at which it is, now or later."""
        return max(self._ready, int(self.env.now))

    def plan_in_flight(self) -> StepPlan | None:
        """The plan made last, if its tokens are not known yet."""
        return self._in_flight

    def close(self, horizon: int) -> None:  # noqa: ARG002
        """The simulation ends: the tokens of the last step are known as if nothing followed it, hence not before the
        engine could decide again.
        """
        if self._in_flight is not None:
            self.take_tokens(max(self._end, self._ready))

    def take_tokens(self, known: int) -> None:
        """The tokens of the plan in flight are there."""
        plan, row, self._in_flight = self._in_flight, self._row, None
        assert plan is not None
        row[FIRST_TOKEN_TIME] = known
        self.log.add_step(row)
        self.server.complete(plan, known)

    def pass_over(self, plan: StepPlan, at: int) -> None:
        """A step without tokens takes no time; with asynchronous scheduling the engine waits for the one in flight."""
        self._unwritten_preemptions += len(plan.preempted)
        if self._in_flight is not None:
            self.take_tokens(max(self._end, at))
        else:
            self._stalled = not plan.preempted
        self._ready = max(at, self._end + self.cost.update) if self._asynchronous else at
