"""Command of Cohere: attention and MLP side by side behind one norm; from Command A on, three layers with a window,
then a full one.

Keys and defaults: transformers 5.24, cohere and cohere2.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import decoder, dense, grouped, num_layers
from simserve.spec.hugging_face.windows import is_window, windowed
from simserve.spec.layers.layer import LayerSpec


def _cohere(keys: Keys) -> Decoder:
    bias = keys.flag("attention_bias", default=False)
    norm = "all" if keys.flag("use_qk_norm", default=False) else "none"
    attention = grouped(keys, qkv_bias=bias, output_bias=bias, qk_norm=norm)
    layer = LayerSpec(attention=attention, mlp=dense(keys), norms=1)
    return decoder(keys, [layer] * num_layers(keys), tied=True, max_positions=8192)


def _cohere2(keys: Keys) -> Decoder:
    for name in ("use_gated_activation", "use_parallel_block", "use_embedding_sharing"):
        keys.expect(name, True, why="is not what the class does")
    keys.expect("use_qk_norm", False, why="is not what the class does: queries and keys have no norms")
    keys.expect("order_of_interleaved_layers", "local_attn_first", why="is not known: layers with a window come first")
    bias = keys.flag("attention_bias", default=False)
    marks = is_window(keys, num_layers(keys), 4, "sliding_window_pattern")
    rows = windowed(keys, grouped(keys, qkv_bias=bias, output_bias=bias), marks, 4096)
    mlp = dense(keys)
    return decoder(keys, [LayerSpec(attention=each, mlp=mlp, norms=1) for each in rows], tied=True, max_positions=8192)


_HARMLESS = ("cache_implementation", "position_embedding_type", "use_parallel_embedding")
"""Which cache of transformers holds keys and values; how positions turn queries and keys, how the embedding is cut."""

FAMILIES = (
    Family("cohere", ("cohere",), ("CohereForCausalLM",), _cohere, _HARMLESS),
    Family("cohere2", ("cohere2",), ("Cohere2ForCausalLM",), _cohere2, _HARMLESS),
)
