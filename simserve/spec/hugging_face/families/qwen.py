"""Qwen 2 and 3, dense and with experts, and the language models of their multimodal versions.

Keys and defaults: transformers 5.24, configuration and modeling files of qwen2, qwen2_moe, qwen3, qwen3_moe, qwen3_vl
and qwen3_vl_moe. Windows count only where `use_sliding_window` says so, and from layer `max_window_layers` on.
"""

from collections.abc import Sequence

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import (
    check_top_k,
    decoder,
    dense,
    gated_activation,
    grouped,
    mixed_layers,
    num_layers,
    window_pattern,
    with_windows,
)
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import Mixture

_LENGTH = 32768


def _windows(keys: Keys, attention: GroupedAttention) -> list[GroupedAttention]:
    """The same attention in each layer, with a window where the file switches windows on."""
    layers, first = num_layers(keys), keys.whole("max_window_layers", default=28)
    marks = [layer >= first for layer in range(layers)]
    return _switched_on(keys, attention, marks if "layer_types" not in keys else window_pattern(keys, layers))


def _switched_on(keys: Keys, attention: GroupedAttention, marks: Sequence[bool]) -> list[GroupedAttention]:
    """The attention of each layer, with a window in those that are marked where `use_sliding_window` says so."""
    window = keys.whole("sliding_window", default=4096, null=0)
    uses = keys.flag("use_sliding_window", default=False)
    if uses and any(marks) and not window:
        raise keys.error("sliding_window", "is needed beside use_sliding_window: true")
    return with_windows(attention, window if uses else None, marks)


def qwen2(keys: Keys) -> Decoder:
    """Decoder of Qwen 2: queries, keys and values have biases."""
    mlp = dense(keys)
    rows = [LayerSpec(attention=each, mlp=mlp) for each in _windows(keys, grouped(keys, qkv_bias=True))]
    return decoder(keys, rows, tied=False, max_positions=_LENGTH)


def _attention_of_qwen3(keys: Keys, *, kv_heads: int | None = None, head_dim: int | None = None) -> GroupedAttention:
    keys.expect("use_qk_norm", True, why="is not what the class does: queries and keys have norms")
    keys.expect("qkv_bias", False, why="is not what the class does: attention_bias says whether there are biases")
    bias = keys.flag("attention_bias", default=False)
    return grouped(keys, kv_heads=kv_heads, head_dim=head_dim, qkv_bias=bias, output_bias=bias, qk_norm="head")


def _qwen3(keys: Keys) -> Decoder:
    mlp = dense(keys)
    attention = _attention_of_qwen3(keys, kv_heads=32, head_dim=128)
    rows = [LayerSpec(attention=each, mlp=mlp) for each in _windows(keys, attention)]
    return decoder(keys, rows, tied=False, max_positions=_LENGTH)


def _is_dense(keys: Keys) -> list[bool]:
    """Whether each layer of a mixture is dense: those that a list names or a step leaves out."""
    step = keys.count("decoder_sparse_step", default=1)
    listed = set(keys.wholes("mlp_only_layers") or ())
    layers = num_layers(keys)
    if listed and max(listed) >= layers:
        raise keys.error("mlp_only_layers", f"names layer {max(listed)} of {layers}, counted from 0")
    return [layer in listed or (layer + 1) % step != 0 for layer in range(layers)]


def _with_experts(keys: Keys, attentions: Sequence[GroupedAttention], mixture: Mixture) -> Decoder:
    is_dense = _is_dense(keys)
    gated_activation(keys)
    mlp = dense(keys) if any(is_dense) else None
    keys.know("intermediate_size")
    rows = mixed_layers(attentions, lambda layer: is_dense[layer], mlp, mixture)
    return decoder(keys, rows, tied=False, max_positions=_LENGTH)


def _qwen2_moe(keys: Keys) -> Decoder:
    shared = keys.whole("shared_expert_intermediate_size", default=5632)
    mixture = Mixture(
        num_experts=keys.count("num_experts", default=60),
        experts_per_token=keys.count("num_experts_per_tok", default=4),
        width=keys.count("moe_intermediate_size", default=1408),
        num_shared_experts=1 if shared else 0,
        shared_width=shared,
        shared_gate=bool(shared),
    )
    attention = grouped(keys, kv_heads=16, qkv_bias=keys.flag("qkv_bias", default=True))
    layers, before = num_layers(keys), keys.whole("max_window_layers", default=28)
    marks = [layer < before and layer % 2 == 0 for layer in range(layers)]
    attentions = _switched_on(keys, attention, marks if "layer_types" not in keys else window_pattern(keys, layers))
    return _with_experts(keys, attentions, check_top_k(keys, mixture, "num_experts_per_tok"))


def _qwen3_moe(keys: Keys) -> Decoder:
    keys.expect("shared_expert_intermediate_size", 0, why="is not what the class does: it has no shared expert")
    mixture = Mixture(
        num_experts=keys.count("num_experts", "num_local_experts", default=128),
        experts_per_token=keys.count("num_experts_per_tok", default=8),
        width=keys.count("moe_intermediate_size", default=768),
    )
    # Its language model in Qwen3-VL has another default of KV heads.
    is_part = keys.text("model_type", default="") == "qwen3_vl_moe_text"
    attention = _attention_of_qwen3(keys, kv_heads=16 if is_part else 4)
    keys.know("max_window_layers")  # windows, where they are switched on, are in all layers
    attentions = _switched_on(keys, attention, [True] * num_layers(keys))
    return _with_experts(keys, attentions, check_top_k(keys, mixture, "num_experts_per_tok"))


FAMILIES = (
    Family("qwen2", ("qwen2", "qwen2_vl_text", "qwen2_5_vl_text"), ("Qwen2ForCausalLM",), qwen2),
    Family("qwen2_moe", ("qwen2_moe",), ("Qwen2MoeForCausalLM",), _qwen2_moe),
    Family("qwen3", ("qwen3", "qwen3_vl_text"), ("Qwen3ForCausalLM",), _qwen3),
    Family("qwen3_moe", ("qwen3_moe", "qwen3_vl_moe_text"), ("Qwen3MoeForCausalLM",), _qwen3_moe),
)
