"""Time kernel by kernel: `run.resolution: kernels`.

The process is the engine core: it decides a step, prepares it, launches its kernels, and waits for the GPU: for this
step or, with asynchronous scheduling, for the one before. That steps end when `Steps` says they do is written nowhere
here. It comes out, to the tick, as long as nothing else uses the memory of the GPU and its launch queue is never full;
where something does, the difference is what it costs.
"""

from collections import deque
from collections.abc import Generator

from simpy import Event

from simserve.cost.kernels import Batch
from simserve.cost.step import StepCost
from simserve.engine.gpu.device import Done, Gpu
from simserve.engine.gpu.spelled import spell_out
from simserve.engine.pace.base import Pace
from simserve.engine.pace.doorbell import Doorbell
from simserve.engine.pace.server import Server
from simserve.engine.plan import StepPlan
from simserve.engine.step_log import CPU_TIME, END, FIRST_TOKEN_TIME, GPU_TIME, LATER, START, step_row


class Flight:
    """A step that was decided and whose tokens are not known yet, with its row for the step log."""

    __slots__ = ("done", "plan", "row")

    def __init__(self, plan: StepPlan, row: list[int]) -> None:
        self.plan = plan
        self.row = row
        self.done: Event | None = None
        """Of its last kernel; there once all of it is launched."""

    @property
    def cpu_done(self) -> int:
        """When the CPU's work on it ends, unless the launch queue is full."""
        return self.row[START] + self.row[CPU_TIME]

    @property
    def executed(self) -> Done | None:
        """What the stream said of it, if it has."""
        if self.done is None or not self.done.triggered:
            return None
        assert isinstance(self.done.value, Done)
        return self.done.value


class Kernels(Pace):
    """An engine core and the GPU `gpu`, on which others may copy meanwhile."""

    def __init__(self, cost: StepCost, gpu: Gpu) -> None:
        super().__init__(cost)
        self.gpu = gpu
        self._asynchronous = self._stalled = False
        self._flights: deque[Flight] = deque()
        self._last = Done(end=0, busy=0)
        """What the stream said of the last step whose tokens are known."""

    def begin(self, server: Server) -> None:
        """The replica is built: begin to serve what it receives."""
        super().begin(server)
        self._asynchronous = server.scheduler.config.async_scheduling
        self._bell = Doorbell(server.env)
        server.env.process(self._serve())

    def disturb(self) -> None:
        """Something outside has changed what the next step may do."""
        if self._bell.is_idle:
            self._stalled = False
            self._bell.ring(int(self.env.now))

    def plan_in_flight(self) -> StepPlan | None:
        """The plan made last, if its tokens are not known yet."""
        return self._flights[-1].plan if self._flights else None

    def close(self, horizon: int) -> None:  # noqa: ARG002
        """The simulation ends: the steps on the GPU, at most two, end as they would with nothing beside them."""
        while self._flights:
            flight = self._flights[0]
            time = self.cost.step(*self._batch(flight.plan))
            end = max(self._last.end + time.gpu, flight.row[START] + time.latency)
            done = flight.executed or Done(end, self._last.busy + time.gpu)
            ready = self._last.end + self.cost.update if self._asynchronous else done.end
            self._know_tokens(done, max(done.end, ready, self._flights[-1].cpu_done))

    def _serve(self) -> Generator[Event, None, None]:
        env = self.env
        while True:
            if not self._has_work():
                yield self._bell.idle()
            elif env.peek() <= env.now:
                yield self._bell.sleep_until(int(env.now))
            self.server.part()
            plan = self.scheduler.schedule()
            if not plan.is_empty:
                yield from self._compute(plan)
            else:
                self._unwritten_preemptions += len(plan.preempted)
                self._stalled = not (self._flights or plan.preempted)
            if len(self._flights) > (self._asynchronous and not plan.is_empty):
                yield from self._wait_for_tokens()

    def _batch(self, plan: StepPlan) -> Batch:
        chunks = [(chunk.num_tokens, chunk.history) for chunk in plan.chunks]
        return Batch(chunks, plan.num_decodes, self.balanced_context(plan), plan.num_decodes + len(chunks))

    def _has_work(self) -> bool:
        return bool(self._flights) or (self.scheduler.has_requests and not self._stalled)

    def _compute(self, plan: StepPlan) -> Generator[Event, None, None]:
        """The engine core's work on a step: prepare it, launch it, and what it does afterwards."""
        env, num_preempted = self.env, self.num_preempted(plan)
        spelled = spell_out(self.cost, self._batch(plan))
        row = step_row(plan, self.ledger, num_preempted, int(env.now), LATER, LATER, spelled.cpu, spelled.padded)
        flight = Flight(plan, row)
        self._flights.append(flight)
        self.log.add_gaps(plan)
        yield env.timeout(spelled.before)
        flight.done = yield from self.gpu.launch(spelled.launches)
        yield env.timeout(spelled.after)

    def _wait_for_tokens(self) -> Generator[Event, None, None]:
        """Wait for the GPU to finish the oldest step, and until the engine can plan with its tokens."""
        env, flight = self.env, self._flights[0]
        assert flight.done is not None
        yield flight.done
        done = flight.executed
        assert done is not None
        self._know_tokens(done, int(env.now))
        if self._asynchronous and done.end + self.cost.update > env.now:
            yield env.timeout(done.end + self.cost.update - env.now)

    def _know_tokens(self, done: Done, known: int) -> None:
        """The tokens of the oldest step are known."""
        flight = self._flights.popleft()
        row = flight.row
        row[END], row[FIRST_TOKEN_TIME], row[GPU_TIME] = done.end, known, done.busy - self._last.busy
        self.log.add_step(row)
        self._last = done
        self.server.complete(flight.plan, known)
