"""Llama 4: three layers that attend to chunks of tokens, then one to all, without positions; experts in all layers or
in every second one, one of them for a token beside one that is shared.

Keys and defaults: transformers 5.24, llama4; which layers are chunked: the same and vLLM 0.33, models/llama4.py.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import disagree
from simserve.spec.hugging_face.parts import (
    CHUNKED,
    FULL,
    check_top_k,
    decoder,
    gated_activation,
    grouped,
    mixed_layers,
    num_layers,
    with_windows,
)
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp, Mixture

_MODULES = Modules(mlp="feed_forward", renamed={"gate": "router", "shared_experts.": "shared_expert."})


def _is_chunked(keys: Keys, layers: int) -> list[bool]:
    """Whether each layer attends to chunks: those with positions do."""
    every = keys.count("no_rope_layer_interval", default=4)
    with_positions = keys.wholes("no_rope_layers", length=layers) or [(layer + 1) % every for layer in range(layers)]
    made = [bool(mark) for mark in with_positions]
    kinds = keys.words("layer_types", known=(FULL, CHUNKED), length=layers)
    if kinds is None:
        return made
    stated = [kind == CHUNKED for kind in kinds]
    if stated != made and ("no_rope_layers" in keys or "no_rope_layer_interval" in keys):
        raise disagree(keys, "layer_types", "no_rope_layers and no_rope_layer_interval")
    return stated


def _is_dense(keys: Keys, layers: int) -> list[bool]:
    every, listed = keys.count("interleave_moe_layer_step", default=1), keys.wholes("moe_layers")
    made = [(layer + 1) % every != 0 for layer in range(layers)]
    if listed is None:
        return made
    wrong = next((layer for layer in listed if layer >= layers), None)
    if wrong is not None:
        raise keys.error("moe_layers", f"names layer {wrong}, yet there are {layers}, counted from 0")
    stated = [layer not in listed for layer in range(layers)]
    if stated != made and "interleave_moe_layer_step" in keys:
        raise disagree(keys, "moe_layers", "interleave_moe_layer_step")
    return stated


def _layers(keys: Keys, chunk: int) -> list[LayerSpec]:
    layers, width = num_layers(keys), keys.count("intermediate_size", default=8192)
    gated_activation(keys)
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, kv_heads=8, head_dim=128, qkv_bias=bias, output_bias=bias)
    keys.flag("use_qk_norm", default=True)  # without weights
    mixture = Mixture(
        num_experts=keys.count("num_local_experts", default=16),
        experts_per_token=keys.count("num_experts_per_tok", default=1),
        width=width,
        num_shared_experts=1,
        shared_width=width,
    )
    is_dense = _is_dense(keys, layers)
    return mixed_layers(
        with_windows(attention, chunk, _is_chunked(keys, layers), chunked=True),
        lambda layer: is_dense[layer],
        DenseMlp(width=keys.count("intermediate_size_mlp", default=16384)),
        check_top_k(keys, mixture, "num_experts_per_tok"),
    )


def _llama4(keys: Keys) -> Decoder:
    chunk = keys.whole("attention_chunk_size", default=8192, null=0)
    found = decoder(keys, _layers(keys, chunk), tied=False, max_positions=4096 * 32, modules=_MODULES)
    if not chunk:
        return found
    half = f"tokens past the first chunk of {chunk} are taken to read a whole chunk; on average they read half"
    return found._replace(warnings=(half,))


_HARMLESS = ("for_llm_compressor",)
"""How a tool keeps the experts' weights."""

FAMILIES = (Family("llama4", ("llama4_text",), ("Llama4ForCausalLM",), _llama4, _HARMLESS),)
