"""A replica whose steps pass kernel by kernel: `run.resolution: kernels`.

Its process is the engine core: it decides a step, prepares it, launches its kernels, and waits for the GPU: for this
step or, with asynchronous scheduling, for the one before. That steps end when `Replica` says they do is written nowhere
here. It comes out, to the tick, as long as nothing else uses the memory of the GPU and its launch queue is never full;
where something does, the difference is what it costs.
"""

from collections import deque
from collections.abc import Generator
from typing import Final

from simpy import Environment, Event

from simserve.cost.step import StepCost
from simserve.engine.gpu.device import Done, Gpu
from simserve.engine.gpu.spelled import SpelledStep, spell_out
from simserve.engine.plan import StepPlan
from simserve.engine.replica import Listener, Replica
from simserve.engine.scheduler import Scheduler
from simserve.engine.step_log import STEP_FIELDS

_NOT_YET: Final = -1
_END, _TOKENS, _GPU_TIME = (STEP_FIELDS.index(name) for name in ("end", "first_token_time", "gpu_time"))


class Flight:
    """A step that was decided and whose tokens are not known yet. `row`: where its row begins in the step log."""

    __slots__ = ("done", "plan", "row", "spelled", "start")

    def __init__(self, plan: StepPlan, spelled: SpelledStep, start: int, row: int) -> None:
        self.plan = plan
        self.spelled = spelled
        self.start = start
        self.row = row
        self.done: Event | None = None


class KernelReplica(Replica):
    """A scheduler and the GPU `gpu`, on which others may copy meanwhile."""

    def __init__(
        self, env: Environment, scheduler: Scheduler, cost: StepCost, gpu: Gpu, listener: Listener | None = None
    ) -> None:
        super().__init__(env, scheduler, cost, skip_equal_steps=False, listener=listener)
        self.gpu = gpu
        self._flights: deque[Flight] = deque()
        self._last = Done(end=0, busy=0)
        """Of the last step whose tokens are known."""

    def close(self, horizon: int) -> None:  # noqa: ARG002
        """The simulation ends: the steps on the GPU, at most two, end as they would with nothing beside them."""
        cores: list[int] = []
        for flight in self._flights:
            cores.append(flight.start + flight.spelled.cpu)
        while self._flights:
            flight = self._flights[0]
            if flight.done is None or not flight.done.triggered:
                self._last = self._foreseen(flight)
            done = self._foreseen(flight)
            last_core = cores[-1] if len(self._flights) > 1 else 0
            self._arrive(done, max(done.end, last_core))

    def _serve(self) -> Generator[Event, None, None]:
        env = self.env
        while True:
            if not self._has_work():
                self._idle = True
                self._wake = Event(env)
                yield self._wake
            elif env.peek() <= env.now:
                yield self._sleep_until(int(env.now))
            plan = self.scheduler.schedule()
