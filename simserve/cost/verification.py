"""A step that verifies drafts: its batch, its attention, and the CUDA graph that runs it.

Verification sends 1 + drafts tokens of a request through the model at once. Matrix products see so many rows; attention
reads the KV of a request once, whatever the number of its queries, and multiplies it with each of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from simserve.cost.attention import AttentionTime
from simserve.cost.device import Device
from simserve.cost.forward import Forward
from simserve.cost.launch import GraphMode, GraphPolicy, graph_policy
from simserve.cost.operators import Kernel
from simserve.spec.ticks import TICKS_PER_SECOND

Chunk = tuple[int, int]
"""New tokens, and tokens computed before."""


class Batch(NamedTuple):
    """Requests with drafts to verify, and prompt chunks.

    `queries`: tokens of all verifications; `context`: tokens of KV that they read, their own included; `pairs`: of
    queries with the keys that they see; `longest`: most queries of a request.
    """

    num_verified: int
    queries: int
    context: int
    pairs: int
    longest: int
    prompts: Sequence[Chunk]

    @classmethod
    def of(cls, verified: Sequence[Chunk], prompts: Sequence[Chunk]) -> "Batch":
        """The batch of some verifications and chunks."""
        queries = context = pairs = longest = 0
        for new, history in verified:
            queries += new
            context += history + new
            pairs += new * history + new * (new + 1) // 2
            longest = max(longest, new)
        return cls(len(verified), queries, context, pairs, longest, prompts)

    @property
    def tokens(self) -> int:
        """All tokens of the step."""
        return self.queries + sum(new for new, _ in self.prompts)

    @property
    def num_requests(self) -> int:
        """All requests of the step."""
        return self.num_verified + len(self.prompts)

    @property
    def all_context(self) -> int:
        """Tokens of all requests after the step, as if every draft were right."""
        return self.context + sum(new + history for new, history in self.prompts)

    def is_uniform(self, query_len: int) -> bool:
        """Whether all requests verify, and all the same number of tokens."""
        return not self.prompts and self.queries == query_len * self.num_verified

    def one_more_each(self) -> "Batch":
        """The same batch with one token more of each request, as a draft model sees it: the token just sampled."""
        more = [(new + 1, history) for new, history in self.prompts]
        verified = self.num_verified
        context = self.context + verified
        return Batch(verified, self.queries + verified, context, self.pairs + context, self.longest + 1, more)


class VerificationAttention:
    """Ticks of one attention layer over a batch with drafts to verify."""

    def __init__(self, time: AttentionTime, device: Device) -> None:
        attention = time.attention
        self.time = time
        peak = device.peak_flops[attention.dtype] * device.attention_mfu.values[-1]
        self._per_pair = attention.decode_flops / peak * TICKS_PER_SECOND
        self._tile = device.decode_tile if attention.decode_flops == attention.pair_flops else 0

    def __call__(self, batch: Batch) -> int:
        """Decode attention at its bandwidth, or the FLOPs of all pairs at the rate of long prompts if that takes
        longer; prompt chunks come on top. Where the device runs several queries of a request as it runs a prompt, each
        request has the FLOPs of a whole tile, and chunks beside it are one kernel with it.
        """
        time = self.time
        if not self._is_own_kernel(batch):
            return time.mixed(batch.prompts, batch.num_verified, batch.context)
        return time.prefill(batch.prompts) + self._verification(batch)

    def kernels(self, batch: Batch) -> list[Kernel]:
        """The same as kernels."""
        time = self.time
        kernels = time.kernels(batch.prompts, batch.num_verified, batch.context)
        if not self._is_own_kernel(batch):
            return kernels
        ticks = self._verification(batch)
        reading = ticks == time.decodes.ticks(batch.num_verified, batch.context)
        flops = self._pairs(batch) * time.attention.decode_flops
        bound = kernels[-1].bound if reading else "compute"
        return [*kernels[:-1], kernels[-1]._replace(ticks=ticks, flops=flops, bound=bound)]

    def _is_own_kernel(self, batch: Batch) -> bool:
        """Whether the verifications are one kernel, which differs from one over decodes."""
        return batch.longest > 1 and not (self._tile and batch.prompts)

    def _verification(self, batch: Batch) -> int:
        reading = self.time.decodes.ticks(batch.num_verified, batch.context)
        return max(reading, int(self._pairs(batch) * self._per_pair))

    def _pairs(self, batch: Batch) -> int:
        """Queries with keys that are multiplied, those of a tile that stand idle included."""
        pairs, window = batch.pairs, self.time.attention.window
        if self._tile:
            pairs = max(pairs, self._tile * batch.context)
        if window is not None:
            pairs = min(pairs, max(batch.queries, self._tile * batch.num_verified) * window)
        return pairs


class BatchAttention:
    """Ticks of a full and of a window layer of a model over a batch; 0 for a kind that it has not."""

    def __init__(self, forward: Forward) -> None:
        self._layers = [
            None if time is None else VerificationAttention(time, forward.device)
            for time in (forward.full, forward.window)
        ]
        self._forward = forward
        kinds = [layer.attention.window is not None for layer in forward.shape.each_layer()]
        self._counts = len(kinds) - sum(kinds), sum(kinds)

    def __call__(self, batch: Batch) -> tuple[int, int]:
        """Ticks of one layer of each kind."""
        full, window = (0 if layer is None else layer(batch) for layer in self._layers)
        return full, window

    def decodes(self, num_decodes: int, context: int) -> tuple[int, int]:
        """The same over requests with one query each."""
        full, window = (0 if layer is None else layer.time.mixed((), num_decodes, context) for layer in self._layers)
        return full, window

    def kernels(self, batch: Batch, time: AttentionTime) -> list[Kernel]:
        """Kernels of one layer whose attention is `time`."""
        layer = self._layers[0 if time is self._forward.full else 1]
        assert layer is not None
        return layer.kernels(batch)

    def all_layers(self, attention: tuple[int, int]) -> int:
        """Ticks of all layers, from those of one of each kind."""
        return self._counts[0] * attention[0] + self._counts[1] * attention[1]


class VerificationGraphs:
    """Which graph runs a step. Full graphs are for steps in which every request verifies the same number of tokens, and
    have sizes that are multiples of it (vLLM 0.32, v1/worker/gpu/cudagraph_utils.py). Any other step is a mixed one.
    """

    def __init__(self, mode: str, sizes: Sequence[int], max_num_seqs: int, query_len: int) -> None:
        largest = sizes[-1] if sizes else 0
        rounded = sorted({-(-size // query_len) * query_len for size in sizes})
        full = [size for size in rounded if size <= min(largest, max_num_seqs * query_len)]
        self.query_len = query_len
        self._uniform = graph_policy(mode, full, max_num_seqs * query_len)
        self._mixed = graph_policy(mode, sizes, max_num_seqs)
        is_full = self._mixed.decode is GraphMode.FULL
        self._drafts = GraphPolicy(tuple(sizes) if is_full else (), self._mixed.decode, GraphMode.NONE, max_num_seqs)

    def of_step(self, batch: Batch) -> tuple[GraphMode, int]:
        """Mode of a step, and the tokens that its matrix products run on."""
        if batch.is_uniform(self.query_len):
            mode, rows = self._uniform.choose(batch.tokens, decode_only=True)
            if mode is not GraphMode.NONE:
                return mode, rows
        return self._mixed.choose(batch.tokens, decode_only=False)

    def of_drafts(self, num_requests: int) -> tuple[GraphMode, int]:
        """The same of a pass of the drafter over one token of each request: a graph of the whole, or none."""
        return self._drafts.choose(num_requests, decode_only=True)
