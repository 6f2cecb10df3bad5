"""KV blocks: how large one is, and how layers of several kinds share the pool."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from simserve.cost.held import WHOLE, Held
from simserve.cost.kinds.registry import KINDS
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.errors import ScenarioError
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import Attention
from simserve.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class KvGroups:
    """Groups of layers that draw blocks from one pool (vLLM's hybrid KV cache manager).

    Layers are cut into groups of equal size, and a block holds tokens of the `layers` of one group. `groups`: how a
    request is held, for how many tokens a block is there, in multiples of `block_size`, and how many groups of layers
    hold it so. A model whose layers are alike is one group. `page_bytes`: a block's share of one layer.
    """

    layers: int
    groups: tuple[tuple[Held, int, int], ...]
    page_bytes: int

    @classmethod
    def of(cls, model: ModelSpec, ranks: int, block_size: int) -> "KvGroups":
        """Groups of a model on one of `ranks` GPUs (vLLM 0.32, v1/core/kv_cache_utils.py,
        unify_kv_cache_spec_page_size and _get_kv_cache_groups_uniform_page_size).

        Raises:
            ScenarioError: layers cache numbers of bytes for a token of which one is no multiple of another.
        """
        layers = layers_by_holding(model, ranks, block_size)
        page = max(size for _, size in layers)
        for _, size in layers:
            if page % size:
                raise ScenarioError(
                    f"model {model.name}: its layers cache {size} and {page} bytes in a block, of which one is no "
                    "multiple of the other: how such layers share a pool is not modelled yet"
                )
        counts: Counter[tuple[Held, int]] = Counter()
        for (held, size), count in layers.items():
            counts[held, page // size] += count
        small, large = min(counts.values()), max(counts.values())
        size = large if large < 1.5 * small else small
        groups = tuple((held, times, ceil(count / size)) for (held, times), count in counts.items())
        return cls(size, groups, page)

    @property
    def is_plain(self) -> bool:
        """Whether all layers hold all tokens of a request, so that a block is one of `block_size` tokens."""
        return self.groups == ((WHOLE, 1, 1),)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block on one GPU."""
        return self.layers * self.page_bytes

    def request_blocks(self, tokens: int, block_size: int, in_flight: int) -> int:
        """Blocks that one request of `tokens` tokens holds in all groups, `in_flight` tokens being under way."""
        return sum(count * held.blocks(tokens, times * block_size, in_flight) for held, times, count in self.groups)


def layers_by_holding(model: ModelSpec, ranks: int, block_size: int) -> Counter[tuple[Held, int]]:
    """How many layers of a model hold a request in the same way, with the bytes of the KV of one of them in a block on
    one of `ranks` GPUs. Layers that read the KV of others hold nothing.
    """
    layers: Counter[tuple[Held, int]] = Counter()
    for attention, count in model.attentions.items():
        if attention.kv_elements:
            size = layer_block_bytes(attention, model, ranks, block_size)
            layers[KINDS[attention.kind].held(attention), size] += count
    return layers


def layer_block_bytes(attention: Attention, model: ModelSpec, ranks: int, block_size: int) -> int:
    """Bytes of the KV of one layer in a block on one of `ranks` GPUs. KV heads fewer than GPUs are copied, an MLA
    latent always is.
    """
    elements = attention.kv_elements
    if isinstance(attention, GroupedAttention):
        elements = elements // attention.num_kv_heads * max(1, attention.num_kv_heads // ranks)
    return round(elements * bytes_per_element(model.kv_dtype) * block_size)


def sent_bytes(models: Sequence[ModelSpec], ranks: int, block_size: int, tokens: int, cached_blocks: int) -> int:
    """Bytes of KV that a replica of stages of `ranks` GPUs fetches for `tokens` tokens of which it has the first
    blocks: whole blocks of all layers of all `models` (a drafter's, too), as each kind of layer sends them.

    Each GPU fetches what it holds, so that what is copied on several of them (KV heads fewer than GPUs, a latent) is
    sent once for each.
    """
    return ranks * sum(_sent_by_rank(model, ranks, block_size, tokens, cached_blocks) for model in models)


def _sent_by_rank(model: ModelSpec, ranks: int, block_size: int, tokens: int, cached_blocks: int) -> int:
    layers = layers_by_holding(model, ranks, block_size)
    return sum(
        count * size * held.sent_blocks(tokens, block_size, cached_blocks) for (held, size), count in layers.items()
    )
