"""KV blocks: how large one is, and how layers of several kinds share the pool."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from simserve.cost.held import WHOLE, Held
from simserve.cost.kinds.registry import KINDS
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class KvGroups:
    """Groups of layers that draw blocks from one pool (vLLM's hybrid KV cache manager).

    Layers are cut into groups of equal size, and a block holds `block_size` tokens of the `layers` of one group.
    `groups`: how a request is held, and how many groups of layers hold it so. A model whose layers are alike is one
    group.
    """

    layers: int
    groups: tuple[tuple[Held, int], ...]

    @classmethod
    def of(cls, model: ModelSpec) -> "KvGroups":
        """Groups of a model (vLLM 0.32, v1/core/kv_cache_utils.py, _get_kv_cache_groups_uniform_page_size)."""
        layers = layers_by_holding(model)
        small, large = min(layers.values()), max(layers.values())
        size = large if large < 1.5 * small else small
        return cls(size, tuple((held, ceil(count / size)) for held, count in layers.items()))

    @property
    def is_plain(self) -> bool:
        """Whether all layers hold all tokens of a request, so that a block is one of `block_size` tokens."""
        return self.groups == ((WHOLE, 1),)

    def block_bytes(self, model: ModelSpec, ranks: int, block_size: int) -> int:
        """Bytes of one block on one of `ranks` GPUs."""
        return self.layers * layer_block_bytes(model, ranks, block_size)

    def request_blocks(self, tokens: int, block_size: int, in_flight: int) -> int:
        """Blocks that one request of `tokens` tokens holds in all groups, `in_flight` tokens being under way."""
        return sum(count * held.blocks(tokens, block_size, in_flight) for held, count in self.groups)


def layers_by_holding(model: ModelSpec) -> Counter[Held]:
    """How many layers of a model hold a request in the same way."""
    layers: Counter[Held] = Counter()
    for kind, count in model.attention_layers.items():
        layers[KINDS[kind].held(model)] += count
    return layers


def layer_block_bytes(model: ModelSpec, ranks: int, block_size: int) -> int:
    """Bytes of the KV of one layer in a block on one of `ranks` GPUs. KV heads fewer than GPUs are copied, an MLA
    latent always is.
    """
    elements = model.kv_elements_per_token_per_layer
    if not model.is_mla:
        elements = 2 * max(1, model.num_kv_heads // ranks) * model.head_dim
    return round(elements * bytes_per_element(model.kv_dtype) * block_size)


def sent_bytes(models: Sequence[ModelSpec], ranks: int, block_size: int, tokens: int, cached_blocks: int) -> int:
    """Bytes of KV that a replica of stages of `ranks` GPUs fetches for `tokens` tokens of which it has the first
    blocks: whole blocks of all layers of all `models` (a drafter's, too), as each kind of layer sends them.

    Each GPU fetches what it holds, so that what is copied on several of them (KV heads fewer than GPUs, a latent) is
    sent once for each.
    """
    return ranks * sum(_sent_by_rank(model, ranks, block_size, tokens, cached_blocks) for model in models)


def _sent_by_rank(model: ModelSpec, ranks: int, block_size: int, tokens: int, cached_blocks: int) -> int:
    blocks = sum(
        count * held.sent_blocks(tokens, block_size, cached_blocks) for held, count in layers_by_holding(model).items()
    )
    return layer_block_bytes(model, ranks, block_size) * blocks
