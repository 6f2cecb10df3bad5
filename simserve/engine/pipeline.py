"""A replica whose layers are cut into pipeline stages: each stage is a SimPy resource that one micro-batch holds.

The engine decides micro-batches one after the other, as many as there are stages, before it waits for the oldest
(vLLM 0.32, v1/engine/core.py, step_with_batch_queue); requests whose token is in flight are passed over, so that a
micro-batch is whoever was ready. Where requests are not spread over as many micro-batches as there are stages, stages
idle: those are the bubbles.
"""

from collections import deque
from collections.abc import Generator

from simpy import Event, Resource

from simserve.cost.pipeline import PipelineCost, StageTicks
from simserve.engine.clock import Clock
from simserve.engine.plan import StepPlan
from simserve.engine.replica import Listener, Replica
from simserve.engine.scheduler import Scheduler


class MicroBatch:
    """A step on its way through the stages. `ends`: when it left, or will leave, each stage that it has entered."""

    __slots__ = ("counts", "cpu", "decided", "ends", "left", "padded", "plan", "times")

    counts: tuple[int, int, int, int]
    """Running, waiting, free blocks and preemptions, for the step log."""
    left: Event
    """It has left the last stage."""

    def __init__(self, plan: StepPlan, decided: int, cpu: int, padded: int, times: list[StageTicks]) -> None:
        self.plan = plan
        self.decided = decided
        self.cpu = cpu
        self.padded = padded
        self.times = times
        self.ends: list[int] = []

    def enter(self, at: int) -> int:
        """It gets the next stage at tick `at`; returns for how many. Launches do not wait for what comes before."""
        gpu, latency = self.times[len(self.ends)]
        end = max(at + gpu, self.decided + latency)
        self.ends.append(end)
        return end - at


class PipelineReplica(Replica):
    """A scheduler over several stages."""

    def __init__(
        self, env: Clock, scheduler: Scheduler, cost: PipelineCost, *, listener: Listener | None = None
    ) -> None:
        """`scheduler` lets plans be in flight one behind the other: it visits every request."""
        super().__init__(env, scheduler, cost, skip_equal_steps=False, listener=listener)
        self._stage_ticks = cost.stage_ticks
        self.stages = [Resource(env) for _ in cost.stages]
        self._flights: deque[MicroBatch] = deque()

    def close(self, horizon: int) -> None:  # noqa: ARG002
        """The simulation ends: micro-batches under way pass the stages they have not entered one after the other."""
        free = [0] * len(self.stages)
        while self._flights:
            batch = self._flights.popleft()
            at = batch.decided
            for stage in range(len(self.stages)):
                if stage == len(batch.ends):
                    batch.enter(max(at, free[stage]))
                free[stage] = at = batch.ends[stage]
            self._know_tokens(batch)

    def _serve(self) -> Generator[Event, None, None]:
        env = self.env
        while True:
            if not self._flights and (self._stalled or not self.scheduler.has_requests):
                self._idle = True
                self._wake = Event(env)
                yield self._wake
            elif env.peek() <= env.now:
                yield self._sleep_until(int(env.now))
            self._part()
            if self._decide() and len(self._flights) < len(self.stages):
                continue
            if self._flights:
                yield self._flights[0].left
                self._know_tokens(self._flights.popleft())

    def _decide(self) -> bool:
        """Decide a micro-batch and send it on its way; False if there is nobody for it."""
        ledger, plan = self.scheduler.ledger, self.scheduler.schedule()
        self._unwritten_preemptions += len(plan.preempted)
        if plan.is_empty:
            self._stalled = not (self._flights or plan.preempted)
            return False
        chunks = [(chunk.num_tokens, chunk.history) for chunk in plan.chunks]
        cpu, padded, times = self._stage_ticks(
            chunks, plan.num_decodes, plan.context, plan.num_decodes + len(plan.chunks)
        )
        batch = MicroBatch(plan, int(self.env.now), cpu, padded, times)
        preempted, self._unwritten_preemptions = self._unwritten_preemptions, 0
        batch.counts = len(ledger.running), len(ledger.waiting), ledger.pool.num_free, preempted
        for request, step_before in plan.gaps:
            self.log.gaps.fromlist([int(request.id), step_before, plan.index])
        batch.left = self.env.process(self._pass_stages(batch))
        self._flights.append(batch)
        return True

    def _pass_stages(self, batch: MicroBatch) -> Generator[Event, None, None]:
        for stage in self.stages:
            with stage.request() as turn:
                yield turn
                yield self.env.timeout(batch.enter(int(self.env.now)))

    def _know_tokens(self, batch: MicroBatch) -> None:
        """A micro-batch has left the last stage: its tokens are known. GPU time is that of an average stage."""
        plan, end = batch.plan, batch.ends[-1]
        gpu = sum(time.gpu for time in batch.times) // len(batch.times)
        self.log.add_step(
            [
                *(1, batch.decided, end, end, 0, 0, plan.num_prefill_tokens, plan.num_decodes, plan.context),
                *(*batch.counts, gpu, batch.cpu, batch.padded),
            ]
        )
        self._complete(plan, end)
