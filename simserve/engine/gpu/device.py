"""The GPU of one replica as SimPy sees it: a queue of launches, a process that works it off, and HBM bandwidth.

The CPU is the process that calls `launch`: an engine core that issues one launch after the other. A launch starts its
kernels back to back: one kernel of an eager launch, all of a CUDA graph. Copies between HBM and a link run beside.
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from simpy import Environment, Event, Process, Store

from simserve.cost.kernels import StepLaunch
from simserve.cost.operators import Kernel
from simserve.engine.gpu.bandwidth import Bandwidth
from simserve.engine.gpu.trace import Trace
from simserve.spec.ticks import TICKS_PER_SECOND

LAUNCH_QUEUE_DEPTH: Final = 1024
"""Launches of a CUDA stream that wait before the next one blocks: about a thousand, as users measured (NVIDIA developer
forum, thread 68937)."""


class Done(NamedTuple):
    """The stream has executed a launch: at tick `end`, after `busy` ticks of kernels since the beginning."""

    end: int
    busy: int


class Queued(NamedTuple):
    """A launch in the queue, and the event that awaits its end, if any."""

    kernels: Sequence[Kernel]
    done: Event | None


class Gpu:
    """Launch queue, stream and HBM of one GPU. `trace` writes down all they do."""

    def __init__(
        self,
        env: Environment,
        hbm_bandwidth: float,
        queue_depth: int = LAUNCH_QUEUE_DEPTH,
        trace: Trace | None = None,
    ) -> None:
        self.env = env
        self.hbm = Bandwidth(env, hbm_bandwidth, trace)
        self._queue = Store(env, capacity=queue_depth)
        self._trace = trace
        env.process(self._stream())

    def launch(self, launches: Sequence[StepLaunch]) -> Generator[Event, None, Event]:
        """A CPU issues launches, one after the other; it waits while the queue is full.

        Returns an event that the stream triggers with `Done` after the last of them: a host sync is to yield it.
        """
        env, queue, trace = self.env, self._queue, self._trace
        done, last = Event(env), len(launches) - 1
        for index, (cpu, kernels) in enumerate(launches):
            yield env.timeout(cpu)
            put = queue.put(Queued(kernels, done if index == last else None))
            if trace is not None:
                name = kernels[0].name if len(kernels) == 1 else f"{kernels[0].name} ... {kernels[-1].name}"
                trace.cpu.append((name, int(env.now) - cpu, int(env.now)))
            if not put.triggered:
                yield put
        return done

    def copy(self, num_bytes: float, bandwidth: float, name: str = "copy") -> Process:
        """Move bytes between HBM and a link of `bandwidth` B/s, beside whatever else runs: yield the process.

        The link itself is the caller's to share; a copy inside HBM is one of twice the bytes at the rate of HBM.
        """
        rate = min(bandwidth, self.hbm.rate)
        ticks = -int(-num_bytes / rate * TICKS_PER_SECOND // 1)
        return self.env.process(self._run(Kernel(name, "copy", num_bytes, 0.0, ticks, "link")))

    def _stream(self) -> Generator[Event, Queued, None]:
        """Execute launches in order, for ever."""
        env, queue, busy = self.env, self._queue, 0
        while True:
            kernels, done = yield queue.get()
            start = int(env.now)
            for kernel in kernels:
                yield from self._run(kernel)
            busy += int(env.now) - start
            if done is not None:
                done.succeed(Done(int(env.now), busy))

    def _run(self, kernel: Kernel) -> Generator[Event, None, None]:
        start = int(self.env.now)
        flow = self.hbm.start(kernel)
        yield flow.end
        self.hbm.stop(flow)
        if self._trace is not None:
            self._trace.stream.append((kernel, start, int(self.env.now)))
