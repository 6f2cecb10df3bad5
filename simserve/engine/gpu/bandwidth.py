"""HBM bandwidth as a resource: the running kernel and the copies beside it use it at the same time.

Whoever moves bytes demands the share of the bandwidth that it would use alone. While the demands fit, all run at full
speed; otherwise the bandwidth is divided max-min fairly (nobody gets more than it demands, those who want more get
equal shares), and who gets less than it demands slows down in proportion. Ends are timed again whenever somebody comes
or goes. Shares are whole parts of `WHOLE` and work is counted in ticks times such parts, so that nothing is lost to
rounding, and a kernel that nobody disturbs takes exactly its ticks.
"""

from typing import Final

from simpy import Environment
from simpy.events import NORMAL

from simserve.cost.operators import Kernel
from simserve.engine.gpu.trace import Trace
from simserve.engine.instant import Due
from simserve.spec.ticks import TICKS_PER_SECOND

WHOLE: Final = 1 << 32
"""All of the bandwidth, and full speed."""


class Flow:
    """A kernel or copy that is running. `end` is due when it ends: yield it at once, since it is exchanged when the
    end moves.
    """

    __slots__ = ("_left", "_since", "demand", "end", "kernel", "share", "speed")

    def __init__(self, kernel: Kernel, end: Due, since: int) -> None:
        self.kernel = kernel
        self.end = end
        self.demand = self.share = 0
        self.speed = WHOLE
        self._left = kernel.ticks * WHOLE
        self._since = since

    def left_at(self, now: int) -> int:
        """Work that is left, in ticks times parts of `WHOLE`."""
        return max(0, self._left - (now - self._since) * self.speed)

    def moved_at(self, now: int) -> float:
        """Bytes moved so far."""
        if not self.kernel.ticks:
            return self.kernel.bytes
        return self.kernel.bytes * (1.0 - self.left_at(now) / (self.kernel.ticks * WHOLE))

    def rate(self) -> float:
        """Bytes per second at present."""
        ticks = self.kernel.ticks
        return self.kernel.bytes / ticks * TICKS_PER_SECOND * (self.speed / WHOLE) if ticks else 0.0

    def run_at(self, speed: int, env: Environment) -> None:
        """Go on with another speed, and end when that lets it."""
        now = int(env.now)
        self._left, self._since, self.speed = self.left_at(now), now, speed
        planned, self.end = self.end, Due(env, now - -self._left // speed, NORMAL)
        self.end.callbacks, planned.callbacks = planned.callbacks, []


class Bandwidth:
    """`rate` bytes per second, shared by flows. `start` one, yield its `end`, then `stop` it."""

    def __init__(self, env: Environment, rate: float, trace: Trace | None = None) -> None:
        self.rate = rate
        self._env = env
        self._trace = trace
        self._flows: list[Flow] = []
        self._bytes_finished = 0.0

    def start(self, kernel: Kernel) -> Flow:
        """A kernel or copy begins now."""
        env, flows = self._env, self._flows
        now = int(env.now)
        flow = Flow(kernel, Due(env, now + kernel.ticks, NORMAL), now)
        flows.append(flow)
        if len(flows) > 1:
            self._share()
        if self._trace is not None:
            self._trace.level(now, flows)
        return flow

    def stop(self, flow: Flow) -> None:
        """A flow has ended."""
        self._flows.remove(flow)
        self._bytes_finished += flow.kernel.bytes
        if self._flows:
            self._share()
        if self._trace is not None:
            self._trace.level(int(self._env.now), self._flows)

    def bytes_moved(self) -> float:
        """Bytes that all flows together have moved up to now."""
        now = int(self._env.now)
        return self._bytes_finished + sum(flow.moved_at(now) for flow in self._flows)

    def demand(self, kernel: Kernel) -> int:
        """Share of the bandwidth that a kernel uses when it is alone.

        What memory binds holds all of it, however little of the peak it reaches: nothing else could run beside it for
        free. What something else binds holds what its bytes take at the peak.
        """
        if kernel.bound == "memory":
            return WHOLE
        if not kernel.bytes:
            return 0
        ticks = kernel.bytes / self.rate * TICKS_PER_SECOND
        return min(WHOLE, int(ticks / kernel.ticks * WHOLE) + 1) if kernel.ticks else WHOLE

    def _share(self) -> None:
        """Divide the bandwidth anew: the least demand first, each at most an equal part of what is left."""
        left, waiting = WHOLE, len(self._flows)
        for flow in self._flows:
            flow.demand = self.demand(flow.kernel)
        for flow in sorted(self._flows, key=lambda each: each.demand):
            flow.share = min(flow.demand, left // waiting)
            left, waiting = left - flow.share, waiting - 1
            speed = WHOLE if flow.share == flow.demand else flow.share * WHOLE // flow.demand
            if speed != flow.speed:
                flow.run_at(speed, self._env)
