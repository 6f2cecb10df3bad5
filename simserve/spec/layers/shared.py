"""A transformer block whose weights several layers share, each with a state-space model of its own (Zamba2)."""

from collections.abc import Iterator
from typing import Literal, Self

from simserve.spec.layers.block import Block, FormatOf
from simserve.spec.layers.sequence import SequenceBlock
from simserve.spec.layers.state_space import Mamba2
from simserve.spec.layers.weights import Matrix, WeightFormat, linear
from simserve.spec.quantities import Count, PositiveCount


class SharedTransformer(SequenceBlock):
    """Attention and an MLP over the hidden state and the embedding side by side, brought into the input of a Mamba-2
    (Zamba2, 2024, arXiv 2411.15242). Every layer caches keys and values of its own.
    """

    type: Literal["shared_transformer"] = "shared_transformer"
    num_heads: PositiveCount
    num_kv_heads: PositiveCount
    head_dim: PositiveCount
    mlp_width: PositiveCount
    mlp_bias: bool = False
    attention_adapter: Count = 0
    """Rank of what a layer adds to the shared projections of queries, keys and values; 0 without."""
    mlp_adapter: PositiveCount
    """Rank of what it adds to that of gate and up."""
    owner: bool
    """The weights are counted here; the other layers that share them count their own parts alone."""
    mamba: Mamba2
    qkv: WeightFormat | None = None
    out: WeightFormat | None = None
    gate_up: WeightFormat | None = None
    down: WeightFormat | None = None
    linear: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    @property
    def kv_elements(self) -> int:
        """Elements that it caches for one token."""
        return 2 * self.num_kv_heads * self.head_dim

    @property
    def rotary_dim(self) -> int:
        """Elements of a row in the table of rotary embeddings, at most."""
        return self.head_dim

    @property
    def parts(self) -> tuple[Block, ...]:
        """The transformer block as it is, and the Mamba-2."""
        return self, self.mamba

    def state_bytes(self, activation_dtype: str) -> int:
        """Bytes of the state for one sequence."""
        return self.mamba.state_bytes(activation_dtype)

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Those of the block where they are counted, the layer's adapters, and the way into its Mamba-2."""
        both, heads, kv = 2 * hidden_size, self.num_heads, self.num_kv_heads
        if self.owner:
            yield linear("qkv", "q_proj", both, heads * self.head_dim, parts=heads)
            yield linear("qkv", "k_proj", both, kv * self.head_dim, parts=kv)
            yield linear("qkv", "v_proj", both, kv * self.head_dim, parts=kv)
            yield linear("out", "o_proj", heads * self.head_dim, hidden_size, parts=heads)
            yield linear("gate_up", "gate_up_proj", hidden_size, 2 * self.mlp_width)
            yield linear("down", "down_proj", self.mlp_width, hidden_size)
        if self.attention_adapter:
            yield linear("adapter", "adapter.down", both, self.attention_adapter, parts=1)._replace(copies=3)
            yield linear("adapter", "adapter.up", self.attention_adapter, both, parts=1)._replace(copies=3)
        yield linear("adapter", "mlp_adapter.down", hidden_size, self.mlp_adapter, parts=1)
        yield linear("adapter", "mlp_adapter.up", self.mlp_adapter, 2 * self.mlp_width, parts=1)
        yield linear("linear", "linear", hidden_size, hidden_size)

    def vectors(self, hidden_size: int) -> int:
        """Norms of the block over both inputs and over the hidden state, biases of its MLP."""
        bias = (2 * self.mlp_width + hidden_size) * self.mlp_bias
        return (3 * hidden_size + bias) * self.owner

    def in_formats(self, format_of: FormatOf, hidden_size: int) -> Self:
        """The same with its own matrices and those of the Mamba-2 in the formats that a checkpoint has for them.

        Raises:
            ValueError: matrices of one GEMM have different formats.
        """
        mamba = self.mamba.in_formats(format_of, hidden_size)
        return super().in_formats(format_of, hidden_size).model_copy(update={"mamba": mamba})
