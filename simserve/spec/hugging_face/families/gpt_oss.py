"""gpt-oss: a window in every second layer, sinks beside the tokens, experts with biases.

Keys and defaults: transformers 5.24, gpt_oss.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import check_top_k, decoder, gated_activation, grouped, num_layers
from simserve.spec.hugging_face.windows import is_window, windowed
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import Mixture

_MODULES = Modules(renamed={"gate": "router"})


def _gpt_oss(keys: Keys) -> Decoder:
    gated_activation(keys)
    layers, bias = num_layers(keys), keys.flag("attention_bias", default=True)
    attention = grouped(keys, kv_heads=8, head_dim=64, qkv_bias=bias, output_bias=bias)
    attention = attention.model_copy(update={"sinks": True})
    mixture = Mixture(
        num_experts=keys.count("num_local_experts", "num_experts", default=128),
        experts_per_token=keys.count("num_experts_per_tok", "experts_per_token", default=4),
        width=keys.count("intermediate_size", default=2880),
        expert_bias=True,
        router_bias=True,
    )
    check_top_k(keys, mixture, "num_experts_per_tok")
    rows = [
        LayerSpec(attention=each, mlp=mixture) for each in windowed(keys, attention, is_window(keys, layers, 2), 128)
    ]
    return decoder(keys, rows, tied=False, max_positions=131072, modules=_MODULES)


_HARMLESS = ("initial_context_length", "swiglu_alpha", "rope_scaling_factor", "rope_ntk_alpha", "rope_ntk_beta")
"""What the scaling of positions began with; a factor of the activation."""

FAMILIES = (Family("gpt_oss", ("gpt_oss",), ("GptOssForCausalLM",), _gpt_oss, _HARMLESS),)
