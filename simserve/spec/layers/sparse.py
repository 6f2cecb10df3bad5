"""Sparse attention over compressed latents: DeepSeek-V4's."""

from collections.abc import Iterator, Sequence
from typing import Literal

from simserve.spec.layers.attention import Indexer
from simserve.spec.layers.sequence import SequenceBlock
from simserve.spec.layers.weights import Matrix, WeightFormat, linear
from simserve.spec.quantities import Count, PositiveCount

_BLOCK = 256
"""Tokens in a block, for which the compressed layers count their latents."""
_WINDOW_BLOCK = 64
"""Tokens in a block of the window."""
_STATE_BLOCKS = {4: 4, 128: 8}
"""Tokens in a block of the compressor's inputs, by ratio."""
_ALIGNMENT = 576
"""Bytes that a block is a multiple of."""
_SCALES = 8
"""Bytes of scales of a latent in fp8."""
_FP32 = 4


class CompressedAttention(SequenceBlock):
    """Attention of DeepSeek-V4 (2026): keys and values are one latent a token. A layer reads a window of them, and
    where it has a `ratio`, one compressed latent for so many tokens: all, or those that its indexer chooses. The layout
    in memory is the model's own (fp8_ds_mla of vLLM 0.33, models/deepseek_v4), whatever the KV dtype.
    """

    type: Literal["compressed"] = "compressed"
    num_heads: PositiveCount
    head_dim: PositiveCount
    """Elements of a latent, of a query, and of a head's output."""
    rope_dim: PositiveCount
    q_lora_rank: PositiveCount
    output_groups: PositiveCount
    """Groups of heads whose output is projected down apart."""
    o_lora_rank: PositiveCount
    window: PositiveCount
    ratio: Count = 0
    """Tokens for one compressed latent; 0 without."""
    indexer: Indexer | None = None
    latent: WeightFormat | None = None
    queries: WeightFormat | None = None
    out_a: WeightFormat | None = None
    out: WeightFormat | None = None
    index: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    @property
    def rotary_dim(self) -> int:
        """Elements of a row in the table of rotary embeddings."""
        return self.rope_dim

    @property
    def overlap(self) -> int:
        """Spans of tokens that a compressed latent sees: those chosen by an indexer overlap."""
        return 2 if self.indexer is not None else 1

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections to the latents and queries, of the output in groups; of compressor and indexer."""
        width = self.num_heads * self.head_dim
        yield linear("latent", "wq_a", hidden_size, self.q_lora_rank, parts=1)
        yield linear("latent", "wkv", hidden_size, self.head_dim, parts=1)
        yield linear("queries", "wq_b", self.q_lora_rank, width, parts=self.num_heads)
        groups = self.output_groups
        down = linear("out_a", "wo_a", width // groups, self.o_lora_rank, parts=groups)
        yield down._replace(copies=groups)
        yield linear("out", "wo_b", groups * self.o_lora_rank, hidden_size, parts=groups)
        if self.ratio:
            yield from _compressor("compressor", hidden_size, self.overlap * self.head_dim)
        if self.indexer is not None:
            width = self.indexer.num_heads * self.indexer.head_dim
            yield linear("index", "indexer.wq_b", self.q_lora_rank, width, parts=1)
            yield linear("index_weights", "indexer.weights_proj", hidden_size, self.indexer.num_heads, parts=1)
            yield from _compressor("indexer.compressor", hidden_size, self.overlap * self.indexer.head_dim)

    def vectors(self, hidden_size: int) -> int:  # noqa: ARG002
        """Norms of the latents, sinks; norms and positions of the compressors."""
        own = self.q_lora_rank + self.head_dim + self.num_heads
        positions = self.ratio * self.overlap + 1
        compressor = positions * self.head_dim if self.ratio else 0
        return own + compressor + (0 if self.indexer is None else positions * self.indexer.head_dim)

    @property
    def latent_bytes(self) -> int:
        """Bytes of one latent: fp8, the positions' part in bf16, scales."""
        return self.head_dim + self.rope_dim + _SCALES

    def kept_bytes(self, kv_dtype: str) -> float:  # noqa: ARG002
        """Bytes of compressed latents for one token."""
        return _padded(_BLOCK // self.ratio * self.latent_bytes) / _BLOCK if self.ratio else 0.0

    @property
    def index_cache_bytes(self) -> float:
        """Bytes of the indexer's compressed keys for one token."""
        if self.indexer is None:
            return 0.0
        return _padded(_BLOCK // self.ratio * self.indexer.cache_bytes) / _BLOCK

    def window_bytes(self, kv_dtype: str) -> Sequence[tuple[int, float]]:  # noqa: ARG002
        """Latents of the window; inputs in fp32 that the compressors have not used up: values and scores."""
        found = [(self.window, _padded(_WINDOW_BLOCK * self.latent_bytes) / _WINDOW_BLOCK)]
        if self.ratio:
            block, values = _STATE_BLOCKS[self.ratio], 2 * self.overlap * _FP32
            dims = [self.head_dim] + ([] if self.indexer is None else [self.indexer.head_dim])
            state = sum(_padded(block * values * dim) for dim in dims) / block
            found.append((self.overlap * self.ratio, state))
        return found


def _compressor(name: str, hidden_size: int, width: int) -> Iterator[Matrix]:
    """Its two projections, to values and to scores; never quantised."""
    yield linear("compressor", f"{name}.wkv", hidden_size, width, parts=1)
    yield linear("compressor", f"{name}.wgate", hidden_size, width, parts=1)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
