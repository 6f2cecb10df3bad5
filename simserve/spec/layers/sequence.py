"""The block of a layer that mixes tokens: attention, a recurrence or a convolution; and what it keeps of a sequence."""

from collections.abc import Sequence
from typing import Literal

from simserve.spec.dtypes import bytes_per_element
from simserve.spec.layers.block import Block

StateDtype = Literal["bf16", "fp16", "fp32"]
"""Format of a recurrent state."""


class SequenceBlock(Block):
    """What it keeps is of three sorts: bytes for each token of the sequence (`kept_bytes`), bytes for each of the last
    tokens (`window_bytes`), and a state of one size (`state_bytes`).
    """

    @property
    def kind(self) -> str:
        """Name of its kind (`simserve.spec.layers.kinds`)."""
        raise NotImplementedError

    @property
    def kv_elements(self) -> int:
        """Elements of keys and values, or of a latent, that it caches for one token."""
        return 0

    @property
    def rotary_dim(self) -> int:
        """Elements of a row in the table of rotary embeddings, at most."""
        return 0

    def kept_bytes(self, kv_dtype: str) -> float:
        """Bytes that it caches for one token as long as the sequence lasts, those of an indexer left out."""
        return self.kv_elements * bytes_per_element(kv_dtype)

    def window_bytes(self, kv_dtype: str) -> Sequence[tuple[int, float]]:  # noqa: ARG002
        """Numbers of last tokens, each with the bytes that it caches for one of them."""
        return ()

    @property
    def index_cache_bytes(self) -> float:
        """Bytes that an indexer caches for one token."""
        return 0.0

    def state_bytes(self, activation_dtype: str) -> int:  # noqa: ARG002
        """Bytes of its state for one sequence, whole: before tensor parallelism."""
        return 0


def state_bytes(activation_dtype: str, *parts: tuple[int, StateDtype | None]) -> int:
    """Bytes of a state of several parts, each with its elements and its format; None is that of the activations."""
    return sum(round(elements * bytes_per_element(dtype or activation_dtype)) for elements, dtype in parts)
