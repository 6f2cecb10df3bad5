"""Gemma, 1 to 3: full attention; a window in every second layer; five layers with a window, then a full one.

Keys and defaults: transformers 5.24, gemma, gemma2 and gemma3.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import decoder, dense, grouped, num_layers
from simserve.spec.hugging_face.windows import is_window, windowed
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec


def _attention(keys: Keys, kv_heads: int, qk_norm: str = "none") -> GroupedAttention:
    keys.expect("use_bidirectional_attention", False, why="is attention to later tokens, too, which is not modelled")
    bias = keys.flag("attention_bias", default=False)
    return grouped(keys, kv_heads=kv_heads, head_dim=256, qkv_bias=bias, output_bias=bias, qk_norm=qk_norm)


def _gemma(keys: Keys) -> Decoder:
    layer = LayerSpec(attention=_attention(keys, 16), mlp=dense(keys))
    return decoder(keys, [layer] * num_layers(keys), tied=True, max_positions=8192)


def _gemma2(keys: Keys) -> Decoder:
    marks = is_window(keys, num_layers(keys), 2)
    rows = windowed(keys, _attention(keys, 4), marks, 4096, "sliding_window_size")
    mlp = dense(keys)
    layers = [LayerSpec(attention=each, mlp=mlp, norms=4) for each in rows]
    return decoder(keys, layers, tied=True, max_positions=8192)


def _gemma3(keys: Keys) -> Decoder:
    """Published files leave out what is as the class has it: heads and the size of the vocabulary."""
    keys.with_defaults({"num_attention_heads": 8, "vocab_size": 262208})
    marks = is_window(keys, num_layers(keys), 6, "sliding_window_pattern", "_sliding_window_pattern")
    rows = windowed(keys, _attention(keys, 4, "head"), marks, 4096)
    mlp = dense(keys)
    layers = [LayerSpec(attention=each, mlp=mlp, norms=4) for each in rows]
    return decoder(keys, layers, tied=True, max_positions=131072)


_HARMLESS = ("cache_implementation",)
"""Which cache of transformers holds keys and values."""

FAMILIES = (
    Family("gemma", ("gemma",), ("GemmaForCausalLM",), _gemma, _HARMLESS),
    Family("gemma2", ("gemma2",), ("Gemma2ForCausalLM",), _gemma2, _HARMLESS),
    Family("gemma3", ("gemma3_text",), ("Gemma3ForCausalLM",), _gemma3, _HARMLESS),
)
