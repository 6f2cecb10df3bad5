"""OLMo of Ai2: 1, norms without weights; 2, norms behind the blocks and of all queries and keys at once; 3, three
layers with a window, then a full one.

Keys and defaults: transformers 5.24, olmo, olmo2 and olmo3.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import decoder, dense, grouped, num_layers
from simserve.spec.hugging_face.windows import is_window, windowed
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec

_LENGTH = 2048


def _attention(keys: Keys, qk_norm: str) -> GroupedAttention:
    bias = keys.flag("attention_bias", default=False)
    return grouped(keys, qkv_bias=bias, output_bias=bias, qk_norm=qk_norm)


def _olmo(keys: Keys) -> Decoder:
    layer = LayerSpec(attention=_attention(keys, "none"), mlp=dense(keys), norms=0)
    found = decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=_LENGTH)
    return found._replace(last_norm=False)


def _olmo2(keys: Keys) -> Decoder:
    layer = LayerSpec(attention=_attention(keys, "all"), mlp=dense(keys))
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=_LENGTH)


def _olmo3(keys: Keys) -> Decoder:
    marks = is_window(keys, num_layers(keys), 4)
    rows = windowed(keys, _attention(keys, "all"), marks, 4096)
    mlp = dense(keys)
    return decoder(keys, [LayerSpec(attention=each, mlp=mlp) for each in rows], tied=False, max_positions=_LENGTH)


FAMILIES = (
    Family("olmo", ("olmo",), ("OlmoForCausalLM",), _olmo, ("clip_qkv",)),
    Family("olmo2", ("olmo2",), ("Olmo2ForCausalLM",), _olmo2),
    Family("olmo3", ("olmo3",), ("Olmo3ForCausalLM",), _olmo3),
)
