"""HBM bandwidth as a resource: the running kernel and the copies beside it use it at the same time.

Everybody demands the share of the bandwidth that its bytes take when it is alone. While the demands fit, all run at
full speed. Otherwise the bandwidth is divided max-min fairly: nobody gets more than it demands, those who want more get
equal shares, and who gets less than it demands slows down in proportion. Ends are timed again whenever somebody comes
or goes. Shares are whole parts of `WHOLE` and work is counted in ticks times such parts, so that nothing is lost to
rounding, and a kernel that nobody disturbs takes exactly its ticks.
"""

from math import ceil
from operator import itemgetter
from typing import Final

from simpy import Environment
from simpy.events import NORMAL

from simserve.cost.operators import Kernel
from simserve.engine.gpu.trace import COPY, Trace
from simserve.engine.instant import Due
from simserve.spec.ticks import TICKS_PER_SECOND

WHOLE: Final = 1 << 32
"""All of the bandwidth, and full speed."""


class Flow:
    """A kernel or copy that is running. `end` is due when it ends: yield it at once, since it is exchanged when the
    end moves.
    """

    __slots__ = ("_left", "_since", "end", "kernel", "speed")

    def __init__(self, kernel: Kernel, end: Due, since: int) -> None:
        self.kernel = kernel
        self.end = end
        self.speed = WHOLE
        self._left = kernel.ticks * WHOLE
        self._since = since

    def left_at(self, now: int) -> int:
        """Work that is left, in ticks times parts of `WHOLE`."""
        return max(0, self._left - (now - self._since) * self.speed)

    def run_at(self, speed: int, env: Environment) -> None:
        """Go on with another speed, and end when that lets it."""
        now = int(env.now)
        self._left, self._since, self.speed = self.left_at(now), now, speed
        planned, self.end = self.end, Due(env, now - (-self._left // speed), NORMAL)
        self.end.callbacks, planned.callbacks = planned.callbacks, []


class Bandwidth:
    """`rate` bytes per second, shared by flows. `start` one, yield its `end`, then `stop` it."""

    def __init__(self, env: Environment, rate: float, trace: Trace | None = None) -> None:
        self.rate = rate
        self._env = env
        self._trace = trace
        self._flows: list[Flow] = []

    def start(self, kernel: Kernel) -> Flow:
        """A kernel or copy begins now."""
        env, flows = self._env, self._flows
        now = int(env.now)
        flow = Flow(kernel, Due(env, now + kernel.ticks, NORMAL), now)
        flows.append(flow)
        if len(flows) > 1:
            self._share()
        if self._trace is not None:
            self._note(self._trace)
        return flow

    def stop(self, flow: Flow) -> None:
        """A flow has ended."""
        self._flows.remove(flow)
        if self._flows:
            self._share()
        if self._trace is not None:
            self._note(self._trace)

    def demand(self, kernel: Kernel) -> int:
        """Share of the bandwidth that a kernel uses when it is alone; what it moves beyond all of it comes from L2."""
        if not kernel.ticks:
            return 0
        return min(WHOLE, ceil(kernel.bytes / self.rate * TICKS_PER_SECOND / kernel.ticks * WHOLE))

    def _share(self) -> None:
        """Divide the bandwidth anew: the least demand first, each at most an equal part of what is left."""
        left, waiting = WHOLE, len(self._flows)
        demands = sorted(((self.demand(flow.kernel), flow) for flow in self._flows), key=itemgetter(0))
        for demand, flow in demands:
            share = min(demand, left // waiting)
            left, waiting = left - share, waiting - 1
            speed = WHOLE if share == demand else share * WHOLE // demand
            if speed != flow.speed:
                flow.run_at(speed, self._env)

    def _note(self, trace: Trace) -> None:
        """Write down the bytes per second of kernels and of copies."""
        kernels = copies = 0.0
        for flow in self._flows:
            use = self.rate * self.demand(flow.kernel) / WHOLE * flow.speed / WHOLE
            if flow.kernel.group == COPY:
                copies += use
            else:
                kernels += use
        trace.level(int(self._env.now), kernels, copies)
