"""CUDA graphs of decode steps: one for each of some batch sizes, to which smaller batches are padded.

A graph replays the same kernels on the same memory, so each size has a batch that stays in place and is filled anew
before every replay. Steps with chunks of prompts and batches above the largest size run eagerly. Without CUDA nothing
can be captured: the padded batch is then run as it is, which is how the rest is tested on a CPU.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibration.engine.batch import Batch, aligned, padded
from calibration.engine.device_batch import DeviceBatch, to_device

Forward = Callable[[DeviceBatch], Tensor]
Replay = Callable[[], Tensor]

NUM_WARM_UPS = 2
"""Runs before a capture: kernels are compiled and libraries take their workspaces, which a capture forbids."""


class DecodeGraphs:
    """Graphs of `forward` for batches of `sizes` decodes whose texts fill up to `max_blocks` blocks."""

    def __init__(self, forward: Forward, sizes: Sequence[int], max_blocks: int, device: torch.device) -> None:
        self.sizes = sorted(sizes)
        self._width = aligned(max_blocks)
        self._batches: dict[int, DeviceBatch] = {}
        self._replays: dict[int, Replay] = {}
        # Largest first: the smaller ones then fit in the memory of the pool that they share.
        pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        for size in reversed(self.sizes):
            batch = to_device(padded(_no_rows(), size, self._width), device, lengths_vary=True)
            self._batches[size] = batch
            self._replays[size] = _capture(forward, batch, pool) if pool is not None else _run(forward, batch)

    def size_for(self, batch: Batch) -> int:
        """Rows of the graph that can run a batch; 0 if none can."""
        if batch.chunks or not self.sizes or batch.num_decodes > self.sizes[-1]:
            return 0
        return self.sizes[bisect_left(self.sizes, batch.num_decodes)]

    def fill(self, batch: Batch, size: int) -> Replay:
        """Put a batch in the place of the graph of `size` rows; returns what runs it, to the tokens of all its rows."""
        self._batches[size].refill(padded(batch, size, self._width))
        return self._replays[size]


def _no_rows() -> Batch:
    nothing, starts = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int32)
    none = starts[:0]
    return Batch(0, (), nothing, nothing, nothing, starts, none, none.reshape(0, 0))


def _run(forward: Forward, batch: DeviceBatch) -> Replay:
    return lambda: forward(batch)


def _capture(forward: Forward, batch: DeviceBatch, pool: Any) -> Replay:
    """Record the kernels of one step (docs.pytorch.org, CUDA semantics: CUDA graphs)."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(NUM_WARM_UPS):
            forward(batch)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        tokens = forward(batch)

    def replay() -> Tensor:
        graph.replay()
        return tokens

    return replay
