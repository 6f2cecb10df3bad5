"""Replays of recorded workloads with several plans in flight, as in a pipeline."""

from typing import Any

from simserve.engine.plan import StepPlan
from simserve.engine.request import FINISHED, Request
from simserve.engine.request_wise import RequestWise
from simserve.validation.observation import ids, num_computed_tokens
from simserve.validation.recording import SchedulerWorkload
from simserve.validation.replay import PlanInFlight, Replay


class Told(RequestWise):
    """A scheduler that says who gets how many tokens in the plan made last, decodes too."""

    told: dict[Request, int]
    history: dict[Request, int]
    sampling: list[Request]

    def schedule(self) -> StepPlan:
        self.told, self.history, self.sampling = {}, {}, []
        return super().schedule()

    def _take_off(self, plan: StepPlan) -> None:
        self.told = {chunk.request: chunk.num_tokens for chunk in plan.chunks}
        self.history = {chunk.request: chunk.history for chunk in plan.chunks}
        self.sampling = [chunk.request for chunk in plan.chunks if chunk.completes]
        super()._take_off(plan)


class PipelinedReplay(Replay):
    """A replay with up to `depth` plans in flight."""

    def __init__(self, workload: SchedulerWorkload, depth: int) -> None:
        super().__init__(workload)
        self.depth = depth
        self.scheduler: Told = Told(self.scheduler.config)

    def step(self) -> dict[str, Any]:
        """One step of the recorder: a plan is made, and the oldest completes if there are enough or nobody is left."""
        record: dict[str, Any] = {"step": self.num_steps, "arrived": ids(self._arrive())}
        aborted = self._abort()
        if aborted:
            record["aborted"] = ids(aborted)
        plan = self.scheduler.schedule() if self.scheduler.has_requests or self.unannounced else None
        if plan is not None:
            self._record_plan(plan, record)
        finished: list[Request] = []
        if self.in_flight and (len(self.in_flight) == self.depth or plan is None or plan.is_empty):
            finished = self._complete(record)
        self.num_idle = self.num_idle + 1 if plan is not None and plan.is_empty and not finished else 0
        record |= self._state()
        self.num_steps += 1
        return record

    def _record_plan(self, plan: StepPlan, record: dict[str, Any]) -> None:
        self.unannounced = False
        scheduler = self.scheduler
        self.in_flight.append(PlanInFlight(self.num_steps, plan, scheduler.sampling))
        record |= {
            "scheduled": {str(request.id): num_tokens for request, num_tokens in scheduler.told.items()},
            "new": ids(plan.new),
            "resumed": ids(plan.resumed),
            "preempted": sorted(ids(plan.preempted)),
            "hit_tokens": {str(request.id): scheduler.history[request] for request in (*plan.new, *plan.resumed)},
            "num_computed": {str(request.id): num_computed_tokens(scheduler, request) for request in scheduler.told},
            "free_blocks_after_schedule": scheduler.ledger.pool.num_free,
        }

    def _complete(self, record: dict[str, Any]) -> list[Request]:
        oldest = self.in_flight.popleft()
        got_token = [request for request in oldest.sampling if request.state is not FINISHED]
        finished = list(self.scheduler.complete(oldest.plan))
        record |= {"processed_step": oldest.step, "got_token": ids(got_token), "finished": ids(finished)}
        self.unannounced = self.unannounced or bool(finished)
        return finished
