"""The GPU of one replica as SimPy sees it: a queue of launches, a process that works it off, and HBM bandwidth.

The CPU is the process that calls `launch`: an engine core that issues one launch after the other. A launch starts its
kernels back to back: one kernel of an eager launch, all of a CUDA graph. Copies between HBM and a link run beside.
"""

from collections.abc import Generator, Sequence
from math import ceil
from typing import Final, NamedTuple

from simpy import Environment, Event, Process, Store

from simserve.cost.kernels import StepLaunch
from simserve.cost.operators import Kernel
from simserve.engine.gpu.bandwidth import Bandwidth
from simserve.engine.gpu.trace import COPY, Trace
from simserve.spec.hardware import GpuSpec
from simserve.spec.ticks import TICKS_PER_SECOND

LAUNCH_QUEUE_DEPTH: Final = 1024
"""Launches of a CUDA stream that wait before the next one blocks: about a thousand, as users measured (NVIDIA developer
forum, thread 68937)."""


class Done(NamedTuple):
    """The stream has executed a launch: at tick `end`, after `busy` ticks of kernels since the beginning."""

    end: int
    busy: int


class Gpu:
    """Launch queue, stream and HBM of one GPU. `bandwidth`: what there is to share. `trace` writes down all they do."""

    def __init__(
        self, env: Environment, bandwidth: float, queue_depth: int = LAUNCH_QUEUE_DEPTH, trace: Trace | None = None
    ) -> None:
        self.env = env
        self.hbm = Bandwidth(env, bandwidth, trace)
        self._queue = Store(env, capacity=queue_depth)
        self._trace = trace
        env.process(self._stream())

    @classmethod
    def of(cls, env: Environment, spec: GpuSpec, trace: Trace | None = None) -> "Gpu":
        """The GPU of a profile. What its best streaming kernels reach of the peak is all that there is to share."""
        shares = spec.efficiency
        reached = max(shares.hbm_decode_attention, shares.hbm_elementwise, *shares.hbm_gemm.values())
        return cls(env, spec.hbm_bandwidth * reached, trace=trace)

    def launch(self, launches: Sequence[StepLaunch]) -> Generator[Event, None, Event]:
        """A CPU issues launches, one after the other; it waits while the queue is full, and where a launch says so.

        Returns an event that the stream triggers with `Done` after the last of them: a host sync is to yield it.
        """
        env, queue, trace = self.env, self._queue, self._trace
        done, last = Event(env), len(launches) - 1
        for index, (cpu, kernels, sync) in enumerate(launches):
            yield env.timeout(cpu)
            executed = done if index == last else Event(env) if sync else None
            put = queue.put((kernels, executed))
            if trace is not None:
                trace.launches.append((launch_name(kernels), int(env.now) - cpu, int(env.now)))
            if not put.triggered:
                yield put
            if sync and executed is not None:
                yield executed
        return done

    def copy(self, num_bytes: float, bandwidth: float, name: str = "copy") -> Process:
        """Move bytes between HBM and a link of `bandwidth` B/s, beside whatever else runs: yield the process.

        The link is the caller's to share out. A copy inside HBM is one of twice its bytes at the bandwidth of HBM.
        """
        ticks = ceil(num_bytes / min(bandwidth, self.hbm.rate) * TICKS_PER_SECOND)
        return self.env.process(self._copy(Kernel(name, COPY, num_bytes, 0.0, ticks, "link")))

    def _copy(self, kernel: Kernel) -> Generator[Event, None, None]:
        start = int(self.env.now)
        flow = self.hbm.start(kernel)
        yield flow.end
        self.hbm.stop(flow)
        if self._trace is not None:
            self._trace.copies.append((kernel, start, int(self.env.now)))

    def _stream(self) -> Generator[Event, tuple[Sequence[Kernel], Event | None], None]:
        """Execute launches in order, for ever."""
        env, queue, hbm, trace, busy = self.env, self._queue, self.hbm, self._trace, 0
        while True:
            kernels, done = yield queue.get()
            begin = start = int(env.now)
            for kernel in kernels:
                flow = hbm.start(kernel)
                yield flow.end
                hbm.stop(flow)
                if trace is not None:
                    trace.kernels.append((kernel, start, int(env.now)))
                    start = int(env.now)
            busy += int(env.now) - begin
            if done is not None:
                done.succeed(Done(int(env.now), busy))


def launch_name(kernels: Sequence[Kernel]) -> str:
    """What a launch is called: by its kernel, or as a graph by its first and last."""
    return kernels[0].name if len(kernels) == 1 else f"graph: {kernels[0].name} to {kernels[-1].name}"
