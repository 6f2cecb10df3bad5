"""Attention over keys and values, as full, window and chunked layers have it: its work on one GPU.

Tensor parallelism splits the heads; KV heads fewer than GPUs are copied (Megatron-LM, arXiv 1909.08053).
"""

from simserve.cost.attention import Attention
from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.sharding import Sharding
from simserve.cost.tables import Tables
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.model import ModelSpec

_MEASURED_HEAD = 128
"""Elements of a head in the measured tables of attention."""


def attention_over_kv(attention: GroupedAttention, model: ModelSpec, sharding: Sharding) -> Attention:
    """A layer that reads the KV of all tokens, on one GPU. Keys and values may differ in size; tables, which know heads
    of one size, are asked for their mean.
    """
    heads, kv_heads = attention.num_heads / sharding.ranks, kv_heads_of_gpu(attention, sharding.ranks)
    dtype = sharding.compute_dtype(model.activation_dtype, model.activation_dtype)
    both = attention.head_dim + attention.value_dim
    flops = 2 * heads * both
    size = both / 2 / _MEASURED_HEAD
    measured = AttentionHeads(heads * size, kv_heads * size, model.kv_dtype)
    kv_bytes = kv_heads * both * bytes_per_element(model.kv_dtype)
    return Attention(heads, kv_bytes, flops, flops, 0.0, None, dtype, measured)


def kv_heads_of_gpu(attention: GroupedAttention, ranks: int) -> float:
    """KV heads on one of `ranks` GPUs."""
    return max(1.0, attention.num_kv_heads / ranks)


def unmeasured_over_kv(model: ModelSpec, tables: Tables) -> str | None:
    """What tables lack of attention over the KV of a model, in words."""
    return None if tables.has_attention(model.kv_dtype) else f"attention over {model.kv_dtype} KV"
