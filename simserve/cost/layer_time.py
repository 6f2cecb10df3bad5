"""What every kind of attention says of its layers: the time of one of them over any step."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from simserve.cost.decode_attention import DecodeTime
from simserve.cost.drafted import Batch
from simserve.cost.operators import Kernel
from simserve.cost.unevenness import Unevenness


class LayerTime(ABC):
    """Ticks of the attention of one layer on one GPU, for each step a whole number.

    `decodes`: the time over decodes alone, in pieces linear in their context, which is what lets the engine add up a
    run of steps in closed form; `mixed` without chunks equals it. `floor`: ticks of one decode over one token.
    `uneven`: what decodes of unequal context take beyond equal ones; None where that makes no difference.
    """

    __slots__ = ("decodes", "floor", "uneven")

    def __init__(self, decodes: DecodeTime, uneven: Unevenness | None = None) -> None:
        self.decodes = decodes
        self.floor = decodes.ticks(1, 1)
        self.uneven = uneven

    @property
    @abstractmethod
    def least(self) -> int:
        """Fewest ticks that the layer takes in any step."""

    @abstractmethod
    def mixed(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> int:
        """Ticks over prompt chunks (new tokens, history) and decodes of `context` tokens together."""

    def prefill(self, chunks: Sequence[tuple[int, int]]) -> int:
        """Ticks over prompt chunks; 0 without."""
        return self.mixed(chunks, 0, 0)

    def decode(self, num_decodes: int, context: int) -> int:
        """Ticks over decodes that read `context` tokens; 0 without."""
        return self.mixed((), num_decodes, context)

    @abstractmethod
    def kernels(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> list[Kernel]:
        """The same as kernels, whose ticks add up to it."""

    def verified(self, batch: Batch) -> int:
        """Ticks over requests with drafts to verify, and prompt chunks: unless a kind knows better, those of decodes
        with as much context.
        """
        return self.mixed(batch.prompts, batch.num_verified, batch.context)

    def verified_kernels(self, batch: Batch) -> list[Kernel]:
        """The same as kernels."""
        return self.kernels(batch.prompts, batch.num_verified, batch.context)

    def measured_context(self, num_decodes: int) -> int | None:  # noqa: ARG002
        """Most tokens of context that so many decodes had in a measurement, 0 for more decodes than any; None where no
        context is more than was measured.
        """
        return None
