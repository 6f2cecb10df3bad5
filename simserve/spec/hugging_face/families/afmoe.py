"""Trinity of Arcee and Muse Glimmer of Meta: three layers with a window, then a full one, the output of attention times
a gate of its own width, norms before and behind each block; experts behind the first layers, or dense.

Keys and defaults: transformers 5.24, afmoe and muse_glimmer.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import (
    check_top_k,
    decoder,
    dense,
    gated_activation,
    grouped,
    num_layers,
)
from simserve.spec.hugging_face.windows import is_window, windowed
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec, Mlp
from simserve.spec.layers.mlp import Mixture


def _attention(keys: Keys, kv_heads: int | None, qk_norm: str) -> GroupedAttention:
    bias = keys.flag("attention_bias", default=False)
    found = grouped(keys, kv_heads=kv_heads, head_dim=128, qkv_bias=bias, output_bias=bias, qk_norm=qk_norm)
    return found.model_copy(update={"gate": "element"})


def _mixture(keys: Keys) -> Mixture:
    gated_activation(keys)
    width, experts = keys.count("moe_intermediate_size", default=1408), keys.count("num_experts", default=64)
    mixture = Mixture(
        num_experts=experts,
        experts_per_token=keys.count("num_experts_per_tok", default=6),
        width=width,
        num_shared_experts=keys.whole("num_shared_experts", default=2, null=0),
        shared_width=width,
        router_bias=True,
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def _afmoe(keys: Keys) -> Decoder:
    layers, first = num_layers(keys), keys.whole("num_dense_layers", default=1)
    marks = is_window(keys, layers, 4, "global_attn_every_n_layers")
    rows = windowed(keys, _attention(keys, None, "head"), marks, 1024)
    mlps: dict[bool, Mlp] = {True: dense(keys), False: _mixture(keys)}
    found = [LayerSpec(attention=each, mlp=mlps[layer < first], norms=4) for layer, each in enumerate(rows)]
    return decoder(keys, found, tied=False, max_positions=16384)


def _muse_glimmer(keys: Keys) -> Decoder:
    """Norms of queries and keys have no weights; the turns are counted from the last layer on."""
    layers = num_layers(keys)
    turns = [(layers - 1 - layer) % 4 != 0 for layer in range(layers)]
    marks = is_window(keys, layers, 4) if "layer_types" in keys else turns
    mlp = dense(keys)
    rows = windowed(keys, _attention(keys, 2, "none"), marks, 2048)
    found = [LayerSpec(attention=each, mlp=mlp, norms=4) for each in rows]
    return decoder(keys, found, tied=False, max_positions=131072)


_HARMLESS = (
    *("load_balance_coeff", "mup_enabled", "num_expert_groups", "num_limited_groups", "route_norm", "route_scale"),
    *("score_func", "use_grouped_mm"),
)
"""How the router was trained and compares its scores; a factor of embeddings; which kernel runs experts."""

_MUSE = ("qk_scale_factor", "output_multiplier", "post_norm_eps", "layer_rope_theta")
"""Factors of values; how positions turn queries and keys."""

FAMILIES = (
    Family("afmoe", ("afmoe",), ("AfmoeForCausalLM",), _afmoe, _HARMLESS),
    Family("muse_glimmer", ("muse_glimmer_text",), ("MuseGlimmerForCausalLM",), _muse_glimmer, _MUSE),
)
