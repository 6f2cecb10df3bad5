"""A step that verifies drafts: its attention, and the CUDA graph that runs it.

Verification sends 1 + drafts tokens of a request through the model at once.
"""

from collections.abc import Sequence
from operator import mul

from simserve.cost.drafted import Batch
from simserve.cost.forward import Forward
from simserve.cost.launch import GraphMode, GraphPolicy, graph_policy


class BatchAttention:
    """Ticks of one layer of each kind of attention of a model over a batch."""

    def __init__(self, forward: Forward) -> None:
        self._times = forward.times
        self._layers = forward.layers

    def __call__(self, batch: Batch) -> tuple[int, ...]:
        """Ticks of one layer of each kind."""
        return tuple([time.verified(batch) for time in self._times])

    def decodes(self, num_decodes: int, context: int) -> tuple[int, ...]:
        """The same over requests with one query each."""
        return tuple([time.mixed((), num_decodes, context) for time in self._times])

    def all_layers(self, attention: tuple[int, ...]) -> int:
        """Ticks of all layers, from those of one of each kind."""
        return sum(map(mul, self._layers, attention))


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
