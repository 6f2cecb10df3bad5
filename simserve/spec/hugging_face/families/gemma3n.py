"""Gemma 3n: four layers with a window, then a full one; the last layers read the keys and values of earlier ones; an
embedding for each layer, several streams of hidden states (AltUp, Baykal et al., 2023, arXiv 2301.13310) and a
low-rank path beside each attention (LAuReL, Menghani et al., 2024, arXiv 2411.07501).

Keys and defaults: transformers 5.24, gemma3n.
"""

from simserve.spec.hugging_face.families.gemma4 import with_layer_inputs
from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import FULL, SLIDING, decoder, gated_activation, grouped, num_layers
from simserve.spec.hugging_face.windows import is_window, last_ones_read, windowed
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp


def _attentions(keys: Keys, layers: int) -> list[GroupedAttention]:
    bias = keys.flag("attention_bias", default=False)
    base = grouped(keys, kv_heads=2, head_dim=256, qkv_bias=bias, output_bias=bias, qk_norm="head")
    keys.expect("use_bidirectional_attention", False, why="is attention to later tokens, too, which is not modelled")
    marks = is_window(keys, layers, 5)
    kinds = [SLIDING if mark else FULL for mark in marks]
    last = keys.whole("num_kv_shared_layers", default=15)
    return last_ones_read(keys, windowed(keys, base, marks, 512), kinds, last)


def _widths(keys: Keys, layers: int) -> list[int]:
    stated = keys.value("intermediate_size")
    if isinstance(stated, list) and len(stated) != layers:
        raise keys.error("intermediate_size", f"expected {layers} items, one for each layer, got {len(stated)}")
    return keys.per_layer("intermediate_size", layers=layers, default=16384)


def _gemma3n(keys: Keys) -> Decoder:
    keys.with_defaults({"num_attention_heads": 8, "vocab_size": 262400})
    layers, hidden = num_layers(keys), keys.count("hidden_size", default=2048)
    gated_activation(keys)
    per_layer, streams = (
        keys.count("hidden_size_per_layer_input", default=256),
        keys.count("altup_num_inputs", default=4),
    )
    altup = streams**2 + streams**3 + (streams + 2) * hidden
    laurel = (2 * keys.count("laurel_rank", default=64) + 1) * hidden
    rows = [
        LayerSpec(
            attention=attention,
            mlp=DenseMlp(width=width),
            norms=5,
            extra_parameters=altup + laurel + 2 * hidden * per_layer,
        )
        for attention, width in zip(_attentions(keys, layers), _widths(keys, layers), strict=True)
    ]
    found = decoder(keys, rows, tied=True, max_positions=32768)
    words = keys.count("vocab_size_per_layer_input", default=262144)
    found = with_layer_inputs(found, layers * per_layer, words, norm=per_layer)
    between = {"projections between streams": 2 * (streams - 1) * hidden**2}
    return found._replace(
        extra_parameters=found.extra_parameters | between,
        left_out=(*found.left_out, "the work of AltUp and LAuReL"),
    )


_HARMLESS = ("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "altup_correct_scale")
"""Which activations are set to 0, though computed; which stream a layer works on, factors of the others."""

FAMILIES = (Family("gemma3n", ("gemma3n_text",), ("Gemma3nForCausalLM",), _gemma3n, _HARMLESS),)
