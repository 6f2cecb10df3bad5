"""The link between HBM and CPU memory, over which swapped requests are copied while the GPU computes."""

from collections.abc import Generator
from math import ceil
from typing import NamedTuple

from simpy import Event, Resource
from simpy.events import NORMAL

from simserve.engine.gpu.device import Gpu
from simserve.engine.instant import Due
from simserve.engine.policies.swap import Swap
from simserve.engine.replica import Replica
from simserve.engine.request import Request
from simserve.spec.ticks import TICKS_PER_SECOND


class CpuMemory(NamedTuple):
    """`space` bytes for blocks of `block_bytes`, behind a link of `bandwidth` bytes per second in each direction.

    All of one GPU: each of a replica's GPUs copies its share of the KV over a link of its own, at the same time.
    """

    space: float
    block_bytes: float
    bandwidth: float

    @property
    def num_blocks(self) -> int:
        """Blocks that have room in it."""
        return int(self.space // self.block_bytes)


class Swapper:
    """Two queues, out and back, each of which copies one request after the other.

    Copies are as fast as the link: blocks are taken to be gathered, not copied one by one. Where the GPU is simulated
    kernel by kernel (`gpu`) they share its memory with the kernels; else neither feels the other.
    """

    def __init__(self, replica: Replica, scheduler: Swap, memory: CpuMemory, gpu: Gpu | None = None) -> None:
        self._replica = replica
        self._scheduler = scheduler
        self._memory = memory
        self._gpu = gpu
        self._queues = {outward: Resource(replica.env) for outward in (True, False)}

    def begin(self, request: Request, num_blocks: int, outward: bool) -> None:
        """Copy so many blocks of a request when the step that is being decided begins."""
        self._replica.env.process(self._copy(request, num_blocks, outward, self._replica.pace.decides_at))

    def _copy(self, request: Request, num_blocks: int, outward: bool, at: int) -> Generator[Event, None, None]:
        env = self._replica.env
        if at > env.now:
            yield Due(env, at, NORMAL)
        with self._queues[outward].request() as turn:
            yield turn
            num_bytes = num_blocks * self._memory.block_bytes
            if self._gpu is None:
                yield env.timeout(ceil(num_bytes / self._memory.bandwidth * TICKS_PER_SECOND))
            else:
                yield self._gpu.copy(num_bytes, self._memory.bandwidth, "swap out" if outward else "swap in")
        self._scheduler.copied(request)
        self._replica.pace.disturb()
