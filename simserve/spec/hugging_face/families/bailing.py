"""Ring and Ling of inclusionAI with linear layers: lightning attention (Ring-linear, Ring 2.5) or Kimi Delta Attention
(Ling 3), and latent or grouped attention in the last layer of each group.

Keys and defaults: transformers 5.24, bailing_hybrid; vLLM 0.33, model_executor/models/bailing_moe_linear.py. The class
of Ring-linear 2.0 is that of its checkpoint; it is read as that of 2.5 with grouped attention.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import dense_layers, latent, pattern
from simserve.spec.hugging_face.parts import (
    FULL,
    check_top_k,
    decoder,
    dense,
    gated_activation,
    grouped,
    mixed_layers,
    num_layers,
)
from simserve.spec.layers.layer import Attention
from simserve.spec.layers.linear_attention import KimiDelta, Lightning
from simserve.spec.layers.mlp import Mixture

_LINEAR = "linear_attention"
_LATENT = {
    **{"num_attention_heads": 32, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128},
}


def _is_linear(keys: Keys, layers: int, group: int) -> list[bool]:
    """Which layers are linear: all of a group but the last one."""
    every = keys.count("layer_group_size", default=group)
    made = [_LINEAR if (layer + 1) % every else FULL for layer in range(layers)]
    stated = keys.words("layer_types", known=(_LINEAR, FULL), length=layers)
    kinds = pattern(keys, "layer_types", stated, made, "layer_group_size")
    if _LINEAR not in kinds:
        raise keys.error("layer_group_size", "leaves no layer linear, which is not modelled in this family")
    return [kind == _LINEAR for kind in kinds]


def _mixture(keys: Keys, *, bias: bool) -> Mixture:
    gated_activation(keys)
    width = keys.count("moe_intermediate_size", default=768)
    mixture = Mixture(
        num_experts=keys.count("num_experts", "num_local_experts", default=512),
        experts_per_token=keys.count("num_experts_per_tok", "num_experts_per_token", default=8),
        width=width,
        router_bias=bias,
        num_shared_experts=keys.whole("num_shared_experts", "n_shared_experts", default=1, null=0),
        shared_width=keys.count("moe_shared_expert_intermediate_size", default=width),
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def _decoder(keys: Keys, attentions: list[Attention], mixture: Mixture, first: int, modules: Modules) -> Decoder:
    is_dense = dense_layers(keys, len(attentions), first)
    rows = mixed_layers(attentions, lambda layer: is_dense[layer], dense(keys), mixture)
    longest = keys.count("max_position_embeddings", "model_max_length", default=262144)
    found = decoder(keys, rows, tied=False, max_positions=longest, modules=modules)
    drafts = keys.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, null=0)
    return found._replace(drafting_layers=drafts)


def _bailing_hybrid(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    full = latent(keys, _LATENT, q_lora_rank=0).model_copy(update={"head_gate": True})
    linear = KimiDelta(
        num_heads=full.num_heads,
        head_dim=keys.count("head_dim", default=128),
        conv_kernel=keys.count("short_conv_kernel_size", default=4),
        full_rank_gate=True,
        full_rank_decay=True,
    )
    attentions: list[Attention] = [linear if each else full for each in _is_linear(keys, layers, 6)]
    return _decoder(keys, attentions, _mixture(keys, bias=False), 2, _KDA)


def _bailing_moe_linear(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    bias = keys.flag("use_bias", default=False)
    if bias:
        raise keys.error("use_bias", "true is not modelled in this family: biases of its experts are not known")
    qkv_bias, norm = keys.flag("use_qkv_bias", default=False), keys.flag("use_qk_norm", default=False)
    full: Attention
    if "kv_lora_rank" in keys:
        keys.know("head_dim")
        full = latent(keys, _LATENT, q_lora_rank=0)
        dim = keys.count("head_dim", default=keys.count("hidden_size") // full.num_heads or None)
    else:
        full = grouped(keys, qkv_bias=qkv_bias, qk_norm="head" if norm else "none")
        dim = full.head_dim
    linear = Lightning(
        num_heads=full.num_heads, num_kv_heads=full.num_heads, head_dim=dim, qkv_bias=qkv_bias, qk_norm=norm
    )
    keys.expect("num_kv_heads_for_linear_attn", full.num_heads, why="is not num_attention_heads")
    attentions: list[Attention] = [linear if each else full for each in _is_linear(keys, layers, 1)]
    routed_bias = keys.flag("moe_router_enable_expert_bias", default=False)
    return _decoder(keys, attentions, _mixture(keys, bias=routed_bias), 0, _LIGHTNING)


_KDA = Modules()
_LIGHTNING = Modules(
    attention="attention",
    renamed={"qkv_proj": "query_key_value", "output_gate": "g_proj", "out_proj": "dense"},
)

_ROUTER = ("moe_renormalize", "num_expert_group", "score_function", "router_dtype", "moe_router_topk_scaling_factor")
_HYBRID = (*_ROUTER, "kda_safe_gate", "kda_lower_bound", "mtp_loss_scaling_factor")
_LINEAR_ONLY = (
    *_ROUTER,
    "group_norm_size",
    "linear_rope",
    "linear_silu",
    "use_linear_silu",
    "use_rmsnorm",
    "norm_head",
)
"""How scores, decays and positions are computed; groups of the norm's mean, whose weights are as many."""

FAMILIES = (
    Family(
        "bailing_moe_linear",
        ("bailing_moe_linear", "bailing_moe_v2_5"),
        ("BailingMoeV2_5ForCausalLM", "BailingMoeLinearForCausalLM", "BailingMoeLinearV2ForCausalLM"),
        _bailing_moe_linear,
        _LINEAR_ONLY,
    ),
    Family(
        "bailing_hybrid",
        ("bailing_hybrid",),
        ("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM"),
        _bailing_hybrid,
        _HYBRID,
    ),
)
