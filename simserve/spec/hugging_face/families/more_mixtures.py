"""Experts beside attention to all tokens, without further ado: OLMoE, Solar Open, Hy 3.

Keys and defaults: transformers 5.24, olmoe, solar_open and hy_v3.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import dense_layers, routed
from simserve.spec.hugging_face.parts import (
    check_top_k,
    decoder,
    dense,
    gated_activation,
    grouped,
    mixed_layers,
    num_layers,
)
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import Mixture


def _olmoe(keys: Keys) -> Decoder:
    """`intermediate_size` is the width of an expert; norms are taken over all heads."""
    gated_activation(keys)
    bias, hidden = keys.flag("attention_bias", default=False), keys.count("hidden_size")
    heads = keys.count("num_attention_heads")
    keys.expect("head_dim", hidden // heads, why="is not hidden_size over heads, which norms of this family need")
    mixture = Mixture(
        num_experts=keys.count("num_experts", "num_local_experts", default=64),
        experts_per_token=keys.count("num_experts_per_tok", default=8),
        width=keys.count("intermediate_size", default=2048),
    )
    attention = grouped(keys, qkv_bias=bias, output_bias=bias, qk_norm="all")
    layer = LayerSpec(attention=attention, mlp=check_top_k(keys, mixture, "num_experts_per_tok"))
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=4096)


def _solar_open(keys: Keys) -> Decoder:
    keys.expect("first_k_dense_replace", 0, why="is not what the class does: all layers have experts")
    keys.know("intermediate_size")  # of dense layers, of which there are none
    keys.expect("use_qk_norm", False, why="is not what the class does: queries and keys have no norms")
    defaults = {"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1280, "n_shared_experts": 1}
    attention = grouped(keys, kv_heads=8, head_dim=128, qkv_bias=keys.flag("attention_bias", default=False))
    layer = LayerSpec(attention=attention, mlp=routed(keys, defaults, "num_local_experts"))
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=131072)


def _hy_v3(keys: Keys) -> Decoder:
    gated_activation(keys)
    keys.expect("qk_norm", True, why="is not what the class does: queries and keys have norms")
    layers, bias = num_layers(keys), keys.flag("attention_bias", default=False)
    attention = grouped(keys, kv_heads=8, head_dim=128, qkv_bias=bias, output_bias=bias, qk_norm="head")
    keys.expect("mlp_bias", False, why="are biases of shared experts, which are not modelled")
    width = keys.count("moe_intermediate_size", default=1536)
    mixture = Mixture(
        num_experts=keys.count("num_experts", "num_local_experts", default=192),
        experts_per_token=keys.count("num_experts_per_tok", default=8),
        width=width,
        num_shared_experts=keys.whole("num_shared_experts", default=1, null=0),
        shared_width=width,
    )
    is_dense = dense_layers(keys, layers, 1)
    rows = mixed_layers(
        [attention] * layers,
        lambda layer: is_dense[layer],
        dense(keys),
        check_top_k(keys, mixture, "num_experts_per_tok"),
    )
    found = decoder(keys, rows, tied=False, max_positions=131072)
    return found._replace(drafting_layers=keys.whole("num_nextn_predict_layers", default=0, null=0))


FAMILIES = (
    Family("olmoe", ("olmoe",), ("OlmoeForCausalLM",), _olmoe, ("clip_qkv",)),
    Family("solar_open", ("solar_open",), ("SolarOpenForCausalLM",), _solar_open),
    Family("hy_v3", ("hy_v3",), ("HYV3ForCausalLM",), _hy_v3, ("router_scaling_factor", "enable_moe_fp32_combine")),
)
