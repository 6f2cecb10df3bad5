"""A block of a layer, an attention or an MLP: matrices, each in the format of its GEMM, and vectors beside them."""

from collections.abc import Callable, Iterator
from typing import Self

from simserve.spec.layers.weights import Matrix, WeightFormat
from simserve.spec.strict import Strict

FormatOf = Callable[[Matrix], WeightFormat | None]
"""Format of a matrix; None is that of the activations."""


class Block(Strict):
    """Its subclasses have a field of type `WeightFormat | None` for each GEMM whose weights may be quantised, named
    after it; a GEMM without such a field is never quantised.
    """

    @property
    def parts(self) -> "tuple[Block, ...]":
        """The blocks that it is made of: itself, where it is not several in one."""
        return (self,)

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """All matrices, without their formats."""
        raise NotImplementedError

    def vectors(self, hidden_size: int) -> int:  # noqa: ARG002
        """Parameters beside the matrices: biases, norms of its own, sinks. They stay in the activations' format."""
        return 0

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """All matrices, each in its format."""
        return [each._replace(format=getattr(self, each.gemm, None)) for each in self.bare_matrices(hidden_size)]

    def parameters(self, hidden_size: int) -> int:
        """All parameters."""
        return sum(each.elements for each in self.bare_matrices(hidden_size)) + self.vectors(hidden_size)

    def in_formats(self, format_of: FormatOf, hidden_size: int) -> Self:
        """The same with the formats that a checkpoint has for its matrices.

        Raises:
            ValueError: matrices of one GEMM have different formats.
        """
        formats: dict[str, WeightFormat | None] = {}
        for each in self.bare_matrices(hidden_size):
            if each.gemm not in type(self).model_fields:
                continue
            found = format_of(each)
            if formats.setdefault(each.gemm, found) != found:
                raise ValueError(f"{each.name} is in another format than the rest of its GEMM, {each.gemm}")
        return self.model_copy(update=formats)
