"""Granite 4 (granitemoehybrid), Bamba, Falcon-H1 and Jamba: state-space layers, and attention in some or beside them.

Keys and defaults: transformers 5.24, granitemoehybrid, bamba, falcon_h1 and jamba.
"""

from collections.abc import Sequence

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import (
    FULL,
    check_top_k,
    decoder,
    dense,
    gated_activation,
    grouped,
    num_layers,
)
from simserve.spec.hugging_face.states import STATE_SPACE, expanded, mamba2, time_step_rank
from simserve.spec.layers.layer import Attention, LayerSpec, Mlp
from simserve.spec.layers.mlp import DenseMlp, Mixture
from simserve.spec.layers.parallel import ParallelAttention
from simserve.spec.layers.state_space import Mamba1

_MAMBA = ("mamba", "linear_attention")
_ATTENTION = ("attention", FULL)
_IN_MAMBA = {name: f".mamba.{name}" for name in ("in_proj", "x_proj", "dt_proj", "out_proj")}


def _granite(keys: Keys) -> Decoder:
    layers, hidden = num_layers(keys), keys.count("hidden_size")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias)
    keys.expect("normalization_function", "rmsnorm", why="is not known: norms of this family have weights alone")
    kinds = keys.words("layer_types", "layers_block_type", known=(*_MAMBA, *_ATTENTION), length=layers)
    is_mamba = [kind in _MAMBA for kind in kinds or ["mamba"] * layers]
    # Files without Mamba layers still have its keys, with sizes that need not fit.
    mamba = mamba2(keys, expanded(keys, hidden, "mamba_expand")) if any(is_mamba) else attention
    if not any(is_mamba):
        keys.know(*_MAMBA_KEYS)
    mlp = _granite_mlp(keys)
    rows = [LayerSpec(attention=mamba if each else attention, mlp=mlp) for each in is_mamba]
    return decoder(keys, rows, tied=False, max_positions=2048, modules=_GRANITE)


def _granite_mlp(keys: Keys) -> Mlp:
    gated_activation(keys)
    shared = keys.count("shared_intermediate_size", default=1024)
    experts = keys.whole("num_local_experts", default=8)
    if not experts:
        keys.know("num_experts_per_tok", "intermediate_size")
        return DenseMlp(width=shared)
    mixture = Mixture(
        num_experts=experts,
        experts_per_token=keys.count("num_experts_per_tok", default=2),
        width=keys.count("intermediate_size", default=11008),
        num_shared_experts=1,
        shared_width=shared,
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def _some_attend(keys: Keys, name: str, layers: int) -> list[bool]:
    """Whether each layer attends, by a list of those that do."""
    places = keys.wholes(name) or []
    wrong = next((place for place in places if place >= layers), None)
    if wrong is not None:
        raise keys.error(name, f"names layer {wrong}, yet there are {layers}")
    return [layer in places for layer in range(layers)]


def _bamba(keys: Keys) -> Decoder:
    layers, hidden = num_layers(keys), keys.count("hidden_size")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, kv_heads=8, qkv_bias=bias, output_bias=bias)
    mamba = mamba2(keys, expanded(keys, hidden, "mamba_expand"))
    mlp = dense(keys, bias=keys.flag("mlp_bias", default=False))
    attends = _some_attend(keys, "attn_layer_indices", layers)
    rows = [LayerSpec(attention=attention if each else mamba, mlp=mlp) for each in attends]
    return decoder(keys, rows, tied=False, max_positions=262144, modules=_FEED_FORWARD)


def _falcon_h1(keys: Keys) -> Decoder:
    layers, hidden = num_layers(keys), keys.count("hidden_size")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, kv_heads=8, qkv_bias=bias, output_bias=bias)
    stated = keys.whole("mamba_d_ssm", default=1024, null=0)
    width = stated or expanded(keys, hidden, "mamba_expand")
    mamba = mamba2(keys, width, norm=keys.flag("mamba_rms_norm", default=False))
    keys.expect("projectors_bias", mamba.bias, why="is not mamba_proj_bias: a bias on one projection is not modelled")
    keys.expect("mamba_use_mlp", True, why="is not known: each layer of this family has an MLP")
    keys.expect("attn_layer_indices", why="names layers, yet all layers of this family attend")
    mlp = dense(keys, bias=keys.flag("mlp_bias", default=False))
    both = ParallelAttention(attention=attention, mamba=mamba)
    rows = [LayerSpec(attention=both, mlp=mlp)] * layers
    return decoder(keys, rows, tied=False, max_positions=8192, modules=_FEED_FORWARD)


def _in_turn(keys: Keys, name: str, layers: int, period: int, offset: int) -> list[bool]:
    """Which layers are the one of every period."""
    every, first = (
        keys.count(f"{name}_layer_period", default=period),
        keys.whole(f"{name}_layer_offset", default=offset),
    )
    if first >= every:
        raise keys.error(f"{name}_layer_offset", f"{first} is not less than {name}_layer_period {every}")
    return [layer % every == first for layer in range(layers)]


def _jamba(keys: Keys) -> Decoder:
    layers, hidden = num_layers(keys), keys.count("hidden_size")
    mamba = Mamba1(
        width=expanded(keys, hidden, "mamba_expand"),
        state_size=keys.count("mamba_d_state", default=16),
        conv_kernel=keys.count("mamba_d_conv", default=4),
        time_step_rank=time_step_rank(keys, "mamba_dt_rank", hidden),
        conv_bias=keys.flag("mamba_conv_bias", default=True),
        bias=keys.flag("mamba_proj_bias", default=False),
        inner_norms=keys.flag("mamba_inner_layernorms", default=True),
    )
    attention: Attention = grouped(keys, kv_heads=8)
    keys.expect("sliding_window", why="is a window that this family is not known to use; remove it")
    attends = _in_turn(keys, "attn", layers, 8, 4)
    plain = dense(keys)
    experts = keys.count("num_experts", "num_local_experts", default=16)
    mixture = Mixture(
        num_experts=experts,
        experts_per_token=keys.count("num_experts_per_tok", default=2),
        width=plain.width,
    )
    is_moe = [each and experts > 1 for each in _in_turn(keys, "expert", layers, 2, 1)]
    if any(is_moe):
        check_top_k(keys, mixture, "num_experts_per_tok")
    mlps: Sequence[Mlp] = [mixture if each else plain for each in is_moe]
    rows = [LayerSpec(attention=attention if each else mamba, mlp=mlp) for each, mlp in zip(attends, mlps, strict=True)]
    return decoder(keys, rows, tied=False, max_positions=262144, modules=_JAMBA)


_GRANITE = Modules(
    renamed=_IN_MAMBA
    | {
        "shared_experts.gate_proj": ".shared_mlp.input_linear",
        "shared_experts.up_proj": ".shared_mlp.input_linear",
        "shared_experts.down_proj": ".shared_mlp.output_linear",
        "gate_proj": ".shared_mlp.input_linear",
        "up_proj": ".shared_mlp.input_linear",
        "down_proj": ".shared_mlp.output_linear",
        "experts.0.gate_proj": ".block_sparse_moe.input_linear",
        "experts.0.up_proj": ".block_sparse_moe.input_linear",
        "experts.0.down_proj": ".block_sparse_moe.output_linear",
    }
)
_FEED_FORWARD = Modules(mlp="feed_forward", renamed=_IN_MAMBA)
_JAMBA = Modules(mlp="feed_forward", renamed=_IN_MAMBA)

_MAMBA_KEYS = (
    *("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand"),
    *("mamba_conv_bias", "mamba_proj_bias"),
)
_GRANITE_HARMLESS = ("position_embedding_type", "init_method", "logits_to_keep")
_BAMBA_HARMLESS = ("attn_rotary_emb",)
_FALCON_HARMLESS = (
    *("mamba_norm_before_gate", "key_multiplier", "mlp_multipliers", "ssm_multipliers", "ssm_in_multiplier"),
    *("ssm_out_multiplier", "attention_in_multiplier", "attention_out_multiplier", "mlp_expansion_factor"),
)
"""Factors of activations; `mlp_expansion_factor`: the class reads intermediate_size alone."""

FAMILIES = (
    Family(
        "granitemoehybrid",
        ("granitemoehybrid",),
        ("GraniteMoeHybridForCausalLM",),
        _granite,
        (*STATE_SPACE, *_GRANITE_HARMLESS),
    ),
    Family("bamba", ("bamba",), ("BambaForCausalLM",), _bamba, (*STATE_SPACE, *_BAMBA_HARMLESS)),
    Family("falcon_h1", ("falcon_h1",), ("FalconH1ForCausalLM",), _falcon_h1, (*STATE_SPACE, *_FALCON_HARMLESS)),
    Family("jamba", ("jamba",), ("JambaForCausalLM",), _jamba, STATE_SPACE),
)
