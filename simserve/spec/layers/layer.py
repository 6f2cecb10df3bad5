"""One layer: its attention, its MLP, the norms around them; and how many such layers follow each other."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from simserve.spec.layers.attention import GroupedAttention, LatentAttention
from simserve.spec.layers.block import Block
from simserve.spec.layers.linear_attention import GatedDeltaNet, KimiDelta, Lightning
from simserve.spec.layers.mlp import DenseMlp, Mixture
from simserve.spec.layers.parallel import ParallelAttention
from simserve.spec.layers.shared import SharedTransformer
from simserve.spec.layers.sparse import CompressedAttention
from simserve.spec.layers.state_space import GatedLinearRecurrence, Mamba1, Mamba2, ShortConv
from simserve.spec.layers.weights import Matrix
from simserve.spec.quantities import Count, PositiveCount
from simserve.spec.strict import Strict

Attention = (
    GroupedAttention
    | LatentAttention
    | CompressedAttention
    | GatedDeltaNet
    | KimiDelta
    | Lightning
    | Mamba1
    | Mamba2
    | ShortConv
    | GatedLinearRecurrence
    | ParallelAttention
    | SharedTransformer
)
Mlp = DenseMlp | Mixture


class LayerSpec(Strict):
    """A layer, `count` times in a row. Either block may be missing."""

    attention: Annotated[Attention, Field(discriminator="type")] | None = None
    mlp: Annotated[Mlp, Field(discriminator="type")] | None = None
    norms: Count = 2
    """Norms over the hidden size around its blocks."""
    extra_parameters: Count = 0
    """Further parameters that no GEMM of a block reads, in the activations' format."""
    count: PositiveCount = 1

    @property
    def blocks(self) -> list[Block]:
        """Its attention and its MLP, as far as it has them; two where it has two in one."""
        return [part for block in (self.attention, self.mlp) if block is not None for part in block.parts]

    @property
    def mixture(self) -> Mixture | None:
        """Its MLP, if that is a mixture of experts."""
        return self.mlp if isinstance(self.mlp, Mixture) else None

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """All matrices of one such layer."""
        return [matrix for block in self.blocks for matrix in block.matrices(hidden_size)]

    def vectors(self, hidden_size: int) -> int:
        """Parameters of one such layer beside its matrices."""
        own = sum(block.vectors(hidden_size) for block in self.blocks)
        return own + self.norms * hidden_size + self.extra_parameters

    def parameters(self, hidden_size: int) -> int:
        """All parameters of one such layer."""
        return sum(each.elements for each in self.matrices(hidden_size)) + self.vectors(hidden_size)


def in_rows(layers: Iterable[LayerSpec]) -> tuple[LayerSpec, ...]:
    """The same layers, those that are alike and follow each other written as one with their number."""
    rows: list[LayerSpec] = []
    for layer in layers:
        if rows and rows[-1].model_copy(update={"count": layer.count}) == layer:
            rows[-1] = rows[-1].model_copy(update={"count": rows[-1].count + layer.count})
        else:
            rows.append(layer)
    return tuple(rows)
