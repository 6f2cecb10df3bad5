"""Time through pipeline stages: each stage is a SimPy resource that one micro-batch holds.

The engine decides micro-batches one after the other, as many as there are stages, before it waits for the oldest
(vLLM 0.32, v1/engine/core.py, step_with_batch_queue); requests whose token is in flight are passed over, so that a
micro-batch is whoever was ready. Where requests are not spread over as many micro-batches as there are stages, stages
idle: those are the bubbles.
"""

from collections import deque
from collections.abc import Generator

from simpy import Event, Resource

from simserve.cost.pipeline import PipelineCost, StageTicks
from simserve.engine.pace.base import Pace
from simserve.engine.pace.doorbell import Doorbell
from simserve.engine.pace.server import Server
from simserve.engine.plan import StepPlan
from simserve.engine.step_log import END, FIRST_TOKEN_TIME, LATER, START, step_row


class MicroBatch:
    """A step on its way through the stages, with its row for the step log. `ends`: when it left, or will leave, each
    stage that it has entered.
    """

    __slots__ = ("ends", "left", "plan", "row", "times")

    left: Event
    """It has left the last stage."""

    def __init__(self, plan: StepPlan, row: list[int], times: list[StageTicks]) -> None:
        self.plan = plan
        self.row = row
        self.times = times
        self.ends: list[int] = []

    @property
    def decided(self) -> int:
        """When it was decided."""
        return self.row[START]

    def enter(self, at: int) -> int:
        """It gets the next stage at tick `at`; returns for how many. Launches do not wait for what comes before."""
        gpu, latency = self.times[len(self.ends)]
        end = max(at + gpu, self.decided + latency)
        self.ends.append(end)
        return end - at


class Stages(Pace):
    """Several stages behind a scheduler that lets plans be in flight one behind the other."""

    def __init__(self, cost: PipelineCost) -> None:
        super().__init__(cost)
        self._stage_ticks = cost.stage_ticks
        self._num_stages = len(cost.stages)
        self._stages: list[Resource] = []
        self._flights: deque[MicroBatch] = deque()
        self._stalled = False

    def begin(self, server: Server) -> None:
        """The replica is built: begin to serve what it receives."""
        super().begin(server)
        self._stages = [Resource(server.env) for _ in range(self._num_stages)]
        self._bell = Doorbell(server.env)
        server.env.process(self._serve())

    def disturb(self) -> None:
        """Something outside has changed what the next step may do."""
        if self._bell.is_idle:
            self._stalled = False
            self._bell.ring(int(self.env.now))

    def close(self, horizon: int) -> None:  # noqa: ARG002
        """The simulation ends: micro-batches under way pass the stages they have not entered one after the other."""
        free = [0] * self._num_stages
        while self._flights:
            batch = self._flights.popleft()
            at = batch.decided
            for stage in range(self._num_stages):
                if stage == len(batch.ends):
                    batch.enter(max(at, free[stage]))
                free[stage] = at = batch.ends[stage]
            self._know_tokens(batch)

    def _serve(self) -> Generator[Event, None, None]:
        env = self.env
        while True:
            if not self._flights and (self._stalled or not self.scheduler.has_requests):
                yield self._bell.idle()
            elif env.peek() <= env.now:
                yield self._bell.sleep_until(int(env.now))
            self.server.part()
            if self._decide() and len(self._flights) < self._num_stages:
                continue
            if self._flights:
                yield self._flights[0].left
                self._know_tokens(self._flights.popleft())

    def _decide(self) -> bool:
        """Decide a micro-batch and send it on its way; False if there is nobody for it."""
        plan = self.scheduler.schedule()
        if plan.is_empty:
            self._unwritten_preemptions += len(plan.preempted)
            self._stalled = not (self._flights or plan.preempted)
            return False
        chunks = [(chunk.num_tokens, chunk.history) for chunk in plan.chunks]
        cpu, padded, times = self._stage_ticks(
            chunks, plan.num_decodes, plan.context, plan.num_decodes + len(plan.chunks)
        )
        gpu = sum(time.gpu for time in times) // len(times)  # of an average stage
        row = step_row(plan, self.ledger, self.num_preempted(plan), int(self.env.now), LATER, gpu, cpu, padded)
        batch = MicroBatch(plan, row, times)
        self.log.add_gaps(plan)
        batch.left = self.env.process(self._pass_stages(batch))
        self._flights.append(batch)
        return True

    def _pass_stages(self, batch: MicroBatch) -> Generator[Event, None, None]:
        for stage in self._stages:
            with stage.request() as turn:
                yield turn
                yield self.env.timeout(batch.enter(int(self.env.now)))

    def _know_tokens(self, batch: MicroBatch) -> None:
        """A micro-batch has left the last stage: its tokens are known."""
        end = batch.ends[-1]
        batch.row[END] = batch.row[FIRST_TOKEN_TIME] = end
        self.log.add_step(batch.row)
        self.server.complete(batch.plan, end)
