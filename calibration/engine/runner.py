"""The model runner: executes batches on one device and tells how long they took.

It knows nothing of requests: the engine hands it what the scheduler decided, a calibration hands it batches of its own.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Literal, NamedTuple

import torch

from calibration.engine.batch import Batch, synthetic_batch
from calibration.engine.config import DTYPES, ModelConfig
from calibration.engine.device_batch import to_device
from calibration.engine.graphs import DecodeGraphs, Replay
from calibration.engine.kv_cache import KVCache
from calibration.engine.model import Decoder
from calibration.engine.rope import RotaryEmbedding
from calibration.engine.weights import Weights, random_weights
from simserve.engine.config import SchedulerConfig

Backend = Literal["torch", "triton"]
Timer = Callable[[], float]


class StepTimes(NamedTuple):
    """Seconds that a step took, and its parts.

    With CUDA, `device` lies between two events around the step's kernels, gaps in which they wait for launches
    included, and `launch` is what issuing them takes the CPU meanwhile. On a CPU `device` is the computation and
    `launch` 0.
    """

    schedule: float
    """Deciding the step; 0 where no scheduler did."""
    prepare: float
    """From the plan, or the batch, to tensors on the device."""
    launch: float
    device: float
    update: float
    """Handing the sampled tokens to their requests; 0 where there are none."""
    total: float
    """From beginning to deciding the step until its tokens are handed over."""


class RunnerOutput(NamedTuple):
    """The token sampled for each row of a batch, the rows of the graph that ran it (0: none), and the times."""

    tokens: list[int]
    graph: int
    times: StepTimes


class ModelRunner:
    """A decoder with random weights and its KV cache.

    `scheduler_config` gives the sizes: blocks, longest text. `graph_sizes` are the batch sizes for which a graph of a
    decode step is captured; while `use_graphs` is on, a batch of decodes is padded to the next of them. Without CUDA
    nothing is captured, but batches are padded all the same.

    `timer` is the clock of all times but `device` with CUDA. On a CPU it is the thread's own time, so that only what
    the thread really ran counts: let torch have one thread.
    """

    def __init__(
        self,
        model: ModelConfig,
        scheduler_config: SchedulerConfig,
        *,
        device: str | torch.device = "cpu",
        backend: Backend = "torch",
        dtype: str = "bf16",
        graph_sizes: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        self.model = model
        self.scheduler_config = scheduler_config
        self.device = torch.device(device)
        self.backend = backend
        self.dtype = dtype
        self.use_graphs = bool(graph_sizes)
        self.timer: Timer = time.thread_time if self.device.type == "cpu" else time.perf_counter
        kind, block_size = DTYPES[dtype], scheduler_config.block_size
        max_model_len = scheduler_config.max_model_len
        weights = random_weights(model, kind, self.device, seed)
        rotary = RotaryEmbedding(model.head_dim, model.rope_theta, max_model_len, kind, self.device)
        self.cache = KVCache(model, scheduler_config.num_gpu_blocks, block_size, kind, self.device)
        self._decoder = Decoder(model, weights, rotary, backend)
        forward = partial(self._decoder, cache=self.cache)
        self._graphs = DecodeGraphs(forward, graph_sizes, -(-max_model_len // block_size), self.device)

    @property
    def weights(self) -> Weights:
        """What the decoder multiplies with."""
        return self._decoder.weights

    def synthetic_batch(
        self, decodes: Sequence[int] = (), chunks: Sequence[tuple[int, int]] = (), seed: int = 0
    ) -> Batch:
        """A batch to be timed: `decodes` are contexts, own token included, `chunks` are (new tokens, tokens before).

        To run it overwrites KV here and there: an engine on this runner with text in its cache is wrong afterwards.

        Raises:
            ValueError: the cache has too few blocks.
        """
        cache = self.cache
        sizes = {"num_blocks": cache.num_blocks, "block_size": cache.block_size, "vocab_size": self.model.vocab_size}
        return synthetic_batch(decodes, chunks, seed=seed, **sizes)

    def warm_up(self) -> None:
        """Run a few batches, so that no kernel is compiled or chosen for the first time while a step is timed.

        A decode kernel is compiled once for each number of shares that it cuts a row's KV into, which depends on rows
        and contexts: with Triton they double up to the largest that fit.
        """
        config, use_graphs = self.scheduler_config, self.use_graphs
        self.use_graphs = False
        most_blocks = self.cache.num_blocks - 1
        most, longest = (config.max_num_seqs, config.max_model_len) if self.backend == "triton" else (2, 2)
        for num_rows, context in product(_powers_of_two(most), _powers_of_two(longest)):
            if num_rows * -(-context // self.cache.block_size) <= most_blocks:
                self.run(self.synthetic_batch([context] * num_rows))
        self.run(self.synthetic_batch([1], [(2, 1), (3, 0)]))
        self.use_graphs = use_graphs

    def prepare(self, batch: Batch) -> tuple[Replay, int]:
        """Copy a batch to the device; returns what executes it, and the rows of the graph that does (0: none)."""
        graph = self._graphs.size_for(batch) if self.use_graphs else 0
        if graph:
            return self._graphs.fill(batch, graph), graph
        return partial(self._decoder, to_device(batch, self.device), self.cache), 0

    def run(self, batch: Batch) -> RunnerOutput:
        """Execute a batch: its KV is in the cache then."""
        timer, began = self.timer, self.timer()
        execute, graph = self.prepare(batch)
        prepared = timer()
        if self.device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            sampled = execute()
            end.record()
            launched = timer()
            tokens = sampled[: batch.num_rows].tolist()
            known, device = timer(), start.elapsed_time(end) / 1e3
        else:
            launched = prepared
            tokens = execute()[: batch.num_rows].tolist()
            known = timer()
            device = known - prepared
        times = StepTimes(0.0, prepared - began, launched - prepared, device, 0.0, known - began)
        return RunnerOutput(tokens, graph, times)


def _powers_of_two(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length())]
