"""KV blocks: how large one is, and how layers that look back on a window share the pool with those that do not."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from simserve.spec.dtypes import bytes_per_element
from simserve.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class KvGroups:
    """Groups of layers that draw blocks from one pool (vLLM's hybrid KV cache manager).

    Layers are cut into groups of equal size, and a block holds `block_size` tokens of one group. A request holds
    blocks in each: all its tokens in a full group, its window and what is in flight in a window group. A model with
    one kind of layer is one group.
    """

    layers: int
    full: int
    windows: int
    window: int | None

    @classmethod
    def of(cls, model: ModelSpec) -> "KvGroups":
        """Groups of a model (vLLM 0.32, v1/core/kv_cache_utils.py, _get_kv_cache_groups_uniform_page_size)."""
        full, window = model.num_full_layers, model.num_window_layers
        if not full or not window:
            return cls(model.num_layers, int(full > 0), int(window > 0), model.sliding_window if window else None)
        small, large = sorted((full, window))
        size = large if large < 1.5 * small else small
        return cls(size, ceil(full / size), ceil(window / size), model.sliding_window)

    def block_bytes(self, model: ModelSpec, ranks: int, block_size: int) -> int:
        """Bytes of one block on one of `ranks` GPUs. KV heads fewer than GPUs are copied, an MLA latent always is."""
        elements = model.kv_elements_per_token_per_layer
        if not model.is_mla:
            elements = 2 * max(1, model.num_kv_heads // ranks) * model.head_dim
        return round(self.layers * elements * bytes_per_element(model.kv_dtype) * block_size)

    def full_blocks(self, tokens: int, block_size: int) -> int:
        """Blocks that `tokens` tokens of one request hold in one full group."""
        return ceil(tokens / block_size)

    def request_blocks(self, tokens: int, block_size: int, in_flight: int) -> int:
        """Blocks that one request of `tokens` tokens holds in all groups, `in_flight` tokens being under way."""
        blocks = self.full * self.full_blocks(tokens, block_size)
        if self.window is not None:
            held = min(self.window - 1 + in_flight, tokens)
            blocks += self.windows * (ceil(held / block_size) + 1)
        return blocks


def sent_bytes(models: Sequence[ModelSpec], ranks: int, block_size: int, tokens: int, cached_blocks: int) -> int:
    """Bytes of KV that a replica of stages of `ranks` GPUs fetches for `tokens` tokens of which it has the first
    blocks: whole blocks of all layers of all `models` (a drafter's, too), keys and values or the latent of MLA.

    Each GPU fetches what it holds, so that what is copied on several of them (KV heads fewer than GPUs, a latent) is
    sent once for each. Of layers that look back on a window only blocks that the next token looks at are sent (vLLM
    0.32, distributed/kv_transfer/kv_connector/v1/nixl).
    """
    return ranks * sum(_sent_by_rank(model, ranks, block_size, tokens, cached_blocks) for model in models)


def _sent_by_rank(model: ModelSpec, ranks: int, block_size: int, tokens: int, cached_blocks: int) -> int:
    one_layer = KvGroups(1, 1, 0, None).block_bytes(model, ranks, block_size)
    blocks = ceil(tokens / block_size)
    full = blocks - cached_blocks
    window = 0
    if model.sliding_window is not None:
        first = max(0, tokens - model.sliding_window + 1) // block_size
        window = max(0, blocks - max(cached_blocks, first))
    return one_layer * (model.num_full_layers * full + model.num_window_layers * window)
