"""Attention and a state-space model side by side in one layer, on the same input (Falcon-H1)."""

from collections.abc import Iterator, Sequence
from typing import Literal, Self

from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.block import Block, FormatOf
from simserve.spec.layers.sequence import SequenceBlock
from simserve.spec.layers.state_space import Mamba2
from simserve.spec.layers.weights import Matrix


class ParallelAttention(SequenceBlock):
    """Both read the normed hidden state and their outputs are added (Falcon-H1, 2025, arXiv 2507.22448)."""

    type: Literal["parallel"] = "parallel"
    attention: GroupedAttention
    mamba: Mamba2

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.type

    @property
    def parts(self) -> tuple[Block, ...]:
        """The two."""
        return self.attention, self.mamba

    @property
    def kv_elements(self) -> int:
        """Elements that its attention caches for one token."""
        return self.attention.kv_elements

    @property
    def rotary_dim(self) -> int:
        """Elements of a row in the table of rotary embeddings, at most."""
        return self.attention.rotary_dim

    def kept_bytes(self, kv_dtype: str) -> float:
        """Bytes that its attention caches for one token as long as the sequence lasts."""
        return self.attention.kept_bytes(kv_dtype)

    def window_bytes(self, kv_dtype: str) -> Sequence[tuple[int, float]]:
        """What its attention caches of the last tokens."""
        return self.attention.window_bytes(kv_dtype)

    def state_bytes(self, activation_dtype: str) -> int:
        """Bytes of the state for one sequence."""
        return self.mamba.state_bytes(activation_dtype)

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Those of both."""
        yield from self.attention.bare_matrices(hidden_size)
        yield from self.mamba.bare_matrices(hidden_size)

    def vectors(self, hidden_size: int) -> int:
        """Those of both."""
        return self.attention.vectors(hidden_size) + self.mamba.vectors(hidden_size)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """All matrices of both, each in its format."""
        return self.attention.matrices(hidden_size) + self.mamba.matrices(hidden_size)

    def in_formats(self, format_of: FormatOf, hidden_size: int) -> Self:
        """The same with both in the formats that a checkpoint has for their matrices.

        Raises:
            ValueError: matrices of one GEMM have different formats.
        """
        both = {name: getattr(self, name).in_formats(format_of, hidden_size) for name in ("attention", "mamba")}
        return self.model_copy(update=both)
