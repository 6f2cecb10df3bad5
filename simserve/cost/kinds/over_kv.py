"""Attention over a KV cache, as full and window layers have it: its work on one GPU, from the shapes of a model.

Tensor parallelism splits the heads; KV heads fewer than GPUs are copied, and the latent of MLA is on every GPU
(Megatron-LM, arXiv 1909.08053).
"""

from simserve.cost.attention import Attention
from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.sharding import Sharding
from simserve.cost.tables import Tables
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.model import ModelSpec

_MEASURED_HEAD = 128
"""Elements of a head in the measured tables of attention."""


def attention_over_kv(model: ModelSpec, sharding: Sharding) -> Attention:
    """A layer that reads the KV of all tokens, on one GPU."""
    heads = model.num_heads / sharding.ranks
    kv_bytes = kv_bytes_of_layer(model, sharding.ranks)
    dtype = sharding.compute_dtype(model.activation_dtype, model.activation_dtype)
    if model.is_mla:
        qk, v, latent = model.qk_nope_head_dim + model.qk_rope_head_dim, model.v_head_dim, model.kv_lora_rank
        pair = 2 * heads * (qk + v)
        decode = 2 * heads * (2 * latent + model.qk_rope_head_dim)
        history = 2 * latent * heads * (model.qk_nope_head_dim + v)
        return Attention(heads, kv_bytes, pair, decode, history, None, dtype)
    flops = 4 * heads * model.head_dim
    size = model.head_dim / _MEASURED_HEAD
    measured = AttentionHeads(heads * size, kv_heads_of_gpu(model, sharding.ranks) * size, model.kv_dtype)
    return Attention(heads, kv_bytes, flops, flops, 0.0, None, dtype, measured)


def kv_heads_of_gpu(model: ModelSpec, ranks: int) -> float:
    """KV heads on one of `ranks` GPUs."""
    return max(1.0, model.num_kv_heads / ranks)


def kv_bytes_of_layer(model: ModelSpec, ranks: int) -> float:
    """Bytes that one layer caches for one token on one of `ranks` GPUs."""
    element = bytes_per_element(model.kv_dtype)
    if model.is_mla:
        return model.kv_elements_per_token_per_layer * element
    return 2 * kv_heads_of_gpu(model, ranks) * model.head_dim * element


def unmeasured_over_kv(model: ModelSpec, tables: Tables) -> str | None:
    """What tables lack of attention over the KV of a model, in words."""
    if model.is_mla:
        return "attention over latents"
    return None if tables.has_attention(model.kv_dtype) else f"attention over {model.kv_dtype} KV"
