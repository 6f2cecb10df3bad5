"""Qwen3-Next, Qwen3.5 and 3.6: three layers of Gated DeltaNet, then one of gated full attention.

Keys and defaults: transformers 5.24, qwen3_next, qwen3_5 and qwen3_5_moe; formats of the state: vLLM 0.33.
"""

from collections.abc import Sequence

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import pattern
from simserve.spec.hugging_face.parts import FULL, check_top_k, decoder, dense, gated_activation, grouped, num_layers
from simserve.spec.hugging_face.states import state_dtype
from simserve.spec.layers.layer import Attention, LayerSpec
from simserve.spec.layers.linear_attention import GatedDeltaNet
from simserve.spec.layers.mlp import Mixture

LINEAR = "linear_attention"

_NEXT = Modules(
    renamed={
        "in_proj_qkv": ".linear_attn.in_proj_qkvz",
        "in_proj_z": ".linear_attn.in_proj_qkvz",
        "in_proj_b": ".linear_attn.in_proj_ba",
        "in_proj_a": ".linear_attn.in_proj_ba",
        "out_proj": ".linear_attn.out_proj",
        "shared_experts.": "shared_expert.",
    }
)
_LATER = Modules(
    renamed={
        name: f".linear_attn.{name}" for name in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
    }
    | {"shared_experts.": "shared_expert."}
)


def _delta_net(keys: Keys) -> GatedDeltaNet:
    heads = keys.count("linear_num_key_heads", default=16)
    value_heads = keys.count("linear_num_value_heads", default=32)
    if value_heads % heads:
        raise keys.error("linear_num_value_heads", f"{value_heads} is no multiple of linear_num_key_heads {heads}")
    return GatedDeltaNet(
        num_k_heads=heads,
        num_v_heads=value_heads,
        k_head_dim=keys.count("linear_key_head_dim", default=128),
        v_head_dim=keys.count("linear_value_head_dim", default=128),
        conv_kernel=keys.count("linear_conv_kernel_dim", default=4),
        state_dtype=state_dtype(keys, "mamba_ssm_dtype"),
    )


def _attentions(keys: Keys, layers: int, kv_heads: int) -> list[Attention]:
    bias = keys.flag("attention_bias", default=False)
    full = grouped(keys, kv_heads=kv_heads, head_dim=256, qkv_bias=bias, output_bias=bias, qk_norm="head")
    if keys.flag("attn_output_gate", default=True):
        full = full.model_copy(update={"gate": "element"})
    linear = _delta_net(keys)
    every = keys.count("full_attention_interval", default=4)
    made = [LINEAR if (layer + 1) % every else FULL for layer in range(layers)]
    stated = keys.words("layer_types", known=(LINEAR, FULL), length=layers)
    kinds = pattern(keys, "layer_types", stated, made, "full_attention_interval")
    return [linear if kind == LINEAR else full for kind in kinds]


def _experts(keys: Keys, experts: int, per_token: int) -> Mixture:
    gated_activation(keys)
    shared = keys.whole("shared_expert_intermediate_size", default=512)
    mixture = Mixture(
        num_experts=keys.count("num_experts", default=experts),
        experts_per_token=keys.count("num_experts_per_tok", default=per_token),
        width=keys.count("moe_intermediate_size", default=512),
        num_shared_experts=int(shared > 0),
        shared_width=shared,
        shared_gate=shared > 0,
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def _decoder(keys: Keys, layers: Sequence[LayerSpec], modules: Modules) -> Decoder:
    found = decoder(keys, layers, tied=False, max_positions=32768, modules=modules)
    drafting = keys.whole("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0, null=0)
    return found._replace(drafting_layers=drafting)


def _next(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    every, dense_ones = keys.count("decoder_sparse_step", default=1), keys.wholes("mlp_only_layers") or []
    experts = keys.whole("num_experts", default=512)
    is_dense = [not experts or layer in dense_ones or (layer + 1) % every != 0 for layer in range(layers)]
    mixture = None if all(is_dense) else _experts(keys, 512, 10)
    plain = dense(keys) if any(is_dense) else None
    keys.know(*(() if any(is_dense) else ("intermediate_size",)))
    attentions = _attentions(keys, layers, 2)
    rows = [
        LayerSpec(attention=each, mlp=plain if first else mixture)
        for each, first in zip(attentions, is_dense, strict=True)
    ]
    return _decoder(keys, rows, _NEXT)


def _dense(keys: Keys) -> Decoder:
    keys.expect("mlp_only_layers", [], why="names layers, yet all layers of this family are dense")
    mlp = dense(keys)
    rows = [LayerSpec(attention=each, mlp=mlp) for each in _attentions(keys, num_layers(keys), 4)]
    return _decoder(keys, rows, _LATER)


def _moe(keys: Keys) -> Decoder:
    keys.expect("mlp_only_layers", [], why="names dense layers, yet all layers of this family have experts")
    keys.expect("decoder_sparse_step", 1, why="leaves layers dense, yet all layers of this family have experts")
    mixture = _experts(keys, 256, 8)
    rows = [LayerSpec(attention=each, mlp=mixture) for each in _attentions(keys, num_layers(keys), 2)]
    return _decoder(keys, rows, _LATER)


_HARMLESS = ("mtp_use_dedicated_embeddings", "output_gate_type")
"""Whether drafts have embeddings of their own; which function the gate is."""

FAMILIES = (
    Family("qwen3_next", ("qwen3_next",), ("Qwen3NextForCausalLM",), _next, _HARMLESS),
    Family("qwen3_5", ("qwen3_5_text",), ("Qwen3_5ForCausalLM",), _dense, _HARMLESS),
    Family("qwen3_5_moe", ("qwen3_5_moe_text",), ("Qwen3_5MoeForCausalLM",), _moe, _HARMLESS),
)
