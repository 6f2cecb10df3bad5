"""Llama and Mistral: full attention, or one window for all layers, and a gated MLP.

Keys and defaults: transformers 5.24, configuration and modeling files of each family.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import decoder, dense, grouped, num_layers, with_windows
from simserve.spec.layers.layer import LayerSpec


def _llama(keys: Keys) -> Decoder:
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias)
    layer = LayerSpec(attention=attention, mlp=dense(keys, bias=keys.flag("mlp_bias", default=False)))
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=2048)


def _mistral(keys: Keys) -> Decoder:
    layers, window = num_layers(keys), keys.whole("sliding_window", default=4096, null=0)
    rows = with_windows(grouped(keys, kv_heads=8), window, [True] * layers)
    mlp = dense(keys)
    return decoder(keys, [LayerSpec(attention=each, mlp=mlp) for each in rows], tied=False, max_positions=4096 * 32)


FAMILIES = (
    Family("llama", ("llama",), ("LlamaForCausalLM",), _llama),
    Family("mistral", ("mistral",), ("MistralForCausalLM",), _mistral),
)
