"""State-space models and convolutions: a state a channel in place of a KV cache."""

from collections.abc import Iterator
from typing import Literal

from simserve.spec.layers.sequence import SequenceBlock, StateDtype, state_bytes
from simserve.spec.layers.weights import Matrix, WeightFormat, linear
from simserve.spec.quantities import PositiveCount


class Mamba1(SequenceBlock):
    """Mamba (Gu and Dao, 2023, arXiv 2312.00752): each channel has a state of its own, `B`, `C` and the time step come
    from the input.
    """

    type: Literal["mamba1"] = "mamba1"
    width: PositiveCount
    """Channels: the expanded hidden size."""
    state_size: PositiveCount
    conv_kernel: PositiveCount
    time_step_rank: PositiveCount
    conv_bias: bool = True
    bias: bool = False
    """Bias on the projections in and out."""
    inner_norms: bool = False
    """Norms of time step, B and C with weights (Jamba)."""
    state_dtype: StateDtype | None = None
    in_proj: WeightFormat | None = None
    x_proj: WeightFormat | None = None
    dt_proj: WeightFormat | None = None
    out: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections in (with the gate), to time step, B and C, of the time step, and out."""
        yield linear("in_proj", "in_proj", hidden_size, 2 * self.width)
        yield linear("x_proj", "x_proj", self.width, self.time_step_rank + 2 * self.state_size)
        yield linear("dt_proj", "dt_proj", self.time_step_rank, self.width)
        yield linear("out", "out_proj", self.width, hidden_size)

    def vectors(self, hidden_size: int) -> int:
        """The convolution, A, D, biases, norms inside."""
        own = self.width * (self.conv_kernel + self.conv_bias + self.state_size + 1 + 1)
        norms = (self.time_step_rank + 2 * self.state_size) * self.inner_norms
        return own + norms + (2 * self.width + hidden_size) * self.bias

    def state_bytes(self, activation_dtype: str) -> int:
        """Inputs that the convolution looks back on, and the state (vLLM 0.33, mamba_utils.py, mamba1_state_shape)."""
        conv = (self.conv_kernel - 1) * self.width
        return state_bytes(activation_dtype, (conv, None), (self.width * self.state_size, self.state_dtype))


class Mamba2(SequenceBlock):
    """Mamba-2 (Dao and Gu, 2024, arXiv 2405.21060): heads with one decay each, groups of heads share `B` and `C`."""

    type: Literal["mamba2"] = "mamba2"
    num_heads: PositiveCount
    head_dim: PositiveCount
    num_groups: PositiveCount
    state_size: PositiveCount
    conv_kernel: PositiveCount
    conv_bias: bool = True
    bias: bool = False
    """Bias on the projections in and out."""
    norm: bool = True
    """The output has a norm with weights before its projection."""
    gate: bool = True
    state_dtype: StateDtype | None = None
    in_proj: WeightFormat | None = None
    out: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    @property
    def width(self) -> int:
        """Channels of all heads."""
        return self.num_heads * self.head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: those of the heads, B and C."""
        return self.width + 2 * self.num_groups * self.state_size

    @property
    def in_outputs(self) -> int:
        """Columns of the projection in: gate, channels of the convolution, a time step a head."""
        return self.width * self.gate + self.conv_dim + self.num_heads

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections in and out."""
        yield linear("in_proj", "in_proj", hidden_size, self.in_outputs, parts=self.num_heads)
        yield linear("out", "out_proj", self.width, hidden_size, parts=self.num_heads)

    def vectors(self, hidden_size: int) -> int:
        """The convolution; A, D and the bias of the time step; the norm; biases."""
        conv = self.conv_dim * (self.conv_kernel + self.conv_bias)
        return conv + 3 * self.num_heads + self.width * self.norm + (self.in_outputs + hidden_size) * self.bias

    def state_bytes(self, activation_dtype: str) -> int:
        """Inputs that the convolution looks back on, and the state (vLLM 0.33, mamba_utils.py, mamba2_state_shape)."""
        conv = (self.conv_kernel - 1) * self.conv_dim
        return state_bytes(activation_dtype, (conv, None), (self.width * self.state_size, self.state_dtype))


class ShortConv(SequenceBlock):
    """A gated convolution over few tokens (LFM2, Liquid AI, 2025, arXiv 2511.23404)."""

    type: Literal["short_conv"] = "short_conv"
    width: PositiveCount
    conv_kernel: PositiveCount
    bias: bool = False
    """Bias on the convolution and both projections."""
    in_proj: WeightFormat | None = None
    out: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """The projection in, with the gates before and after the convolution, and the one out."""
        yield linear("in_proj", "in_proj", hidden_size, 3 * self.width)
        yield linear("out", "out_proj", self.width, hidden_size)

    def vectors(self, hidden_size: int) -> int:
        """The convolution, biases."""
        return self.width * self.conv_kernel + (4 * self.width + hidden_size) * self.bias

    def state_bytes(self, activation_dtype: str) -> int:
        """Inputs that the convolution looks back on (vLLM 0.33, mamba_utils.py, short_conv_state_shape)."""
        return state_bytes(activation_dtype, ((self.conv_kernel - 1) * self.width, None))


class GatedLinearRecurrence(SequenceBlock):
    """The recurrent block of Griffin (De et al., 2024, arXiv 2402.19427): a convolution, then a linear recurrence whose
    gates are block-diagonal.
    """

    type: Literal["gated_linear_recurrence"] = "gated_linear_recurrence"
    width: PositiveCount
    num_blocks: PositiveCount
    """Blocks of the gates' matrices."""
    conv_kernel: PositiveCount
    in_proj: WeightFormat | None = None
    out: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections to the two branches, the gates of the recurrence, the projection out."""
        yield linear("in_proj", "linear_x", hidden_size, self.width)
        yield linear("in_proj", "linear_y", hidden_size, self.width)
        block = self.width // self.num_blocks
        for name in ("rg_lru.input_gate", "rg_lru.recurrent_gate"):
            gate = linear("recurrence_gates", name, block, block, parts=self.num_blocks)
            yield gate._replace(copies=self.num_blocks)
        yield linear("out", "linear_out", self.width, hidden_size)

    def vectors(self, hidden_size: int) -> int:
        """The convolution with its bias, biases of all projections and gates, the decay."""
        return self.width * (self.conv_kernel + 1) + 2 * self.width + 3 * self.width + hidden_size

    def state_bytes(self, activation_dtype: str) -> int:
        """Inputs that the convolution looks back on, and a number in fp32 for each channel (transformers 5.24; vLLM
        0.33 does not serve it).
        """
        conv = (self.conv_kernel - 1) * self.width
        return state_bytes(activation_dtype, (conv, None), (self.width, "fp32"))
