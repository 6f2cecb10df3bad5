"""Linear attention: a matrix a head in place of a KV cache, so that a sequence takes the same memory however long."""

from collections.abc import Iterator
from typing import Literal

from simserve.spec.layers.sequence import SequenceBlock, StateDtype, state_bytes
from simserve.spec.layers.weights import Matrix, WeightFormat, linear
from simserve.spec.quantities import PositiveCount


class GatedDeltaNet(SequenceBlock):
    """Gated DeltaNet (Yang et al., 2024, arXiv 2412.06464) as in Qwen3-Next and Qwen3.5: queries, keys and values pass
    a short convolution, value heads share the keys of a group.
    """

    type: Literal["gated_delta_net"] = "gated_delta_net"
    num_k_heads: PositiveCount
    num_v_heads: PositiveCount
    k_head_dim: PositiveCount
    v_head_dim: PositiveCount
    conv_kernel: PositiveCount
    state_dtype: StateDtype | None = None
    """None: the state is in the format of the activations."""
    in_proj: WeightFormat | None = None
    in_proj_ba: WeightFormat | None = None
    """Projections to decay and write strength, a number a head each."""
    out: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.num_k_heads * self.k_head_dim + self.value_dim

    @property
    def value_dim(self) -> int:
        """Elements of the values of all heads."""
        return self.num_v_heads * self.v_head_dim

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections to queries, keys and values, to the gate, to decay and write strength; of the output."""
        heads = self.num_v_heads
        yield linear("in_proj", "in_proj_qkv", hidden_size, self.conv_dim, parts=self.num_k_heads)
        yield linear("in_proj", "in_proj_z", hidden_size, self.value_dim, parts=heads)
        yield linear("in_proj_ba", "in_proj_b", hidden_size, heads, parts=heads)
        yield linear("in_proj_ba", "in_proj_a", hidden_size, heads, parts=heads)
        yield linear("out", "out_proj", self.value_dim, hidden_size, parts=heads)

    def vectors(self, hidden_size: int) -> int:  # noqa: ARG002
        """The convolution, decay and its bias, the norm of a head's output."""
        return self.conv_dim * self.conv_kernel + 2 * self.num_v_heads + self.v_head_dim

    def state_bytes(self, activation_dtype: str) -> int:
        """Inputs that the convolution looks back on, and a matrix of key by value for each head (vLLM 0.33,
        mamba_utils.py, gated_delta_net_state_shape).
        """
        matrix = self.num_v_heads * self.k_head_dim * self.v_head_dim
        return state_bytes(activation_dtype, ((self.conv_kernel - 1) * self.conv_dim, None), (matrix, self.state_dtype))


class KimiDelta(SequenceBlock):
    """Kimi Delta Attention (Kimi Linear, 2025, arXiv 2510.26692): a gated delta rule with a decay for each channel."""

    type: Literal["kimi_delta"] = "kimi_delta"
    num_heads: PositiveCount
    head_dim: PositiveCount
    conv_kernel: PositiveCount
    full_rank_gate: bool = False
    """The output gate is one matrix (Kimi K3); else a projection down to `head_dim` and one up."""
    full_rank_decay: bool = False
    """The decay is projected by one matrix (Ling 3); else by one down and one up, too."""
    in_proj: WeightFormat | None = None
    decay: WeightFormat | None = None
    gate: WeightFormat | None = None
    out: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    @property
    def width(self) -> int:
        """Elements of the queries of all heads, and of keys and values."""
        return self.num_heads * self.head_dim

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections to queries, keys, values, write strength and decay; of the gate; of the output."""
        heads, width, dim = self.num_heads, self.width, self.head_dim
        for name in ("q_proj", "k_proj", "v_proj"):
            yield linear("in_proj", name, hidden_size, width, parts=heads)
        if self.full_rank_gate:
            yield linear("in_proj", "g_proj", hidden_size, width, parts=heads)
        else:
            yield linear("gate", "g_a_proj", hidden_size, dim, parts=1)
            yield linear("gate", "g_b_proj", dim, width, parts=heads)
        if self.full_rank_decay:
            yield linear("in_proj", "f_proj", hidden_size, width, parts=heads)
        else:
            yield linear("in_proj", "f_a_proj", hidden_size, dim, parts=1)
            yield linear("decay", "f_b_proj", dim, width, parts=heads)
        yield linear("in_proj", "b_proj", hidden_size, heads, parts=heads)
        yield linear("out", "o_proj", width, hidden_size, parts=heads)

    def vectors(self, hidden_size: int) -> int:  # noqa: ARG002
        """The convolutions of queries, keys and values; decay and its bias; the norm of a head's output."""
        return 3 * self.width * self.conv_kernel + self.width + self.num_heads + self.head_dim

    def state_bytes(self, activation_dtype: str) -> int:
        """Inputs that the convolutions look back on, and a square matrix in fp32 for each head (vLLM 0.33,
        mamba_utils.py, kda_state_shape and kda_state_dtype).
        """
        conv = 3 * (self.conv_kernel - 1) * self.width
        return state_bytes(activation_dtype, (conv, None), (self.width * self.head_dim, "fp32"))


class Lightning(SequenceBlock):
    """Lightning attention (Qin et al., 2024, arXiv 2405.17381) as in MiniMax-Text-01 and Ring-linear: the decay of a
    head is a constant.
    """

    type: Literal["lightning"] = "lightning"
    num_heads: PositiveCount
    num_kv_heads: PositiveCount
    head_dim: PositiveCount
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    """Norms of queries and keys, of each head alike."""
    state_dtype: StateDtype | None = None
    qkv: WeightFormat | None = None
    gate: WeightFormat | None = None
    out: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    @property
    def width(self) -> int:
        """Elements of the queries of all heads."""
        return self.num_heads * self.head_dim

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections to queries, keys and values, to the gate, of the output."""
        columns = self.width + 2 * self.num_kv_heads * self.head_dim
        yield linear("qkv", "qkv_proj", hidden_size, columns, parts=self.num_heads)
        yield linear("gate", "output_gate", hidden_size, self.width, parts=self.num_heads)
        yield linear("out", "out_proj", self.width, hidden_size, parts=self.num_heads)

    def vectors(self, hidden_size: int) -> int:
        """Biases, norms of queries, keys and output."""
        bias = (self.width + 2 * self.num_kv_heads * self.head_dim) * self.qkv_bias + hidden_size * self.output_bias
        return bias + 2 * self.head_dim * self.qk_norm + self.width

    def state_bytes(self, activation_dtype: str) -> int:
        """A square matrix for each head (vLLM 0.33, mamba_utils.py, linear_attention_state_shape)."""
        return state_bytes(activation_dtype, (self.width * self.head_dim, self.state_dtype))
