"""EXAONE of LG: 3, Llama under other names; 4, three layers with a window, then a full one, dense, or experts behind
the first layer.

Keys and defaults: transformers 5.24, exaone, exaone4 and exaone_moe. The pattern as letters, which that version cannot
read: published files and vLLM 0.33, models/exaone4.py.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import dense_layers, disagree
from simserve.spec.hugging_face.parts import (
    GATED,
    check_top_k,
    decoder,
    dense,
    gated_activation,
    grouped,
    mixed_layers,
    num_layers,
)
from simserve.spec.hugging_face.windows import is_window, windowed
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import Mixture

_LENGTH = 2048


def _attentions(keys: Keys) -> list[GroupedAttention]:
    keys.expect("attention_bias", False, why="is not what the class does: projections have no biases")
    attention = grouped(keys, kv_heads=32, qk_norm="head")
    return windowed(keys, attention, is_window(keys, num_layers(keys), 4, "sliding_window_pattern"), 4096)


def _exaone(keys: Keys) -> Decoder:
    """EXAONE 3: the class is Llama's, with other names for layers and activation."""
    keys.expect("activation_function", *GATED, why="is not an activation of this family")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, kv_heads=8, qkv_bias=bias, output_bias=bias)
    layer = LayerSpec(attention=attention, mlp=dense(keys, bias=keys.flag("mlp_bias", default=False)))
    layers = keys.count("num_layers", "num_hidden_layers")
    return decoder(keys, [layer] * layers, tied=False, max_positions=4096, modules=_EXAONE)


_EXAONE = Modules(
    "transformer.h",
    "attn.attention",
    renamed={"o_proj": "out_proj", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"},
)


def _exaone4(keys: Keys) -> Decoder:
    mlp = dense(keys)
    rows = [LayerSpec(attention=each, mlp=mlp) for each in _attentions(keys)]
    return decoder(keys, rows, tied=False, max_positions=_LENGTH)


def _is_dense(keys: Keys) -> list[bool]:
    layers = num_layers(keys)
    stated = keys.items("is_moe_layer", length=layers)
    if stated is None:
        return dense_layers(keys, layers, 1)
    if not all(isinstance(each, bool) for each in stated):
        raise keys.error("is_moe_layer", "expected true or false for each layer in the list")
    found = [not each for each in stated]
    if found != dense_layers(keys, layers, 1) and ("first_k_dense_replace" in keys or "mlp_layer_types" in keys):
        raise disagree(keys, "is_moe_layer", "first_k_dense_replace and mlp_layer_types")
    return found


def _exaone_moe(keys: Keys) -> Decoder:
    gated_activation(keys)
    width = keys.count("moe_intermediate_size", default=1024)
    mixture = Mixture(
        num_experts=keys.count("num_experts", default=64),
        experts_per_token=keys.count("num_experts_per_tok", default=8),
        width=width,
        num_shared_experts=keys.whole("num_shared_experts", default=1),
        shared_width=width,
    )
    is_dense = _is_dense(keys)
    check_top_k(keys, mixture, "num_experts_per_tok")
    rows = mixed_layers(_attentions(keys), lambda layer: is_dense[layer], dense(keys), mixture)
    found = decoder(keys, rows, tied=False, max_positions=_LENGTH)
    return found._replace(drafting_layers=keys.whole("num_nextn_predict_layers", default=0, null=0))


FAMILIES = (
    Family("exaone", ("exaone",), ("ExaoneForCausalLM",), _exaone, ("embed_dropout",)),
    Family("exaone4", ("exaone4",), ("Exaone4ForCausalLM",), _exaone4),
    Family(
        "exaone_moe",
        ("exaone_moe",),
        ("ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"),
        _exaone_moe,
        ("share_mtp_layers",),
    ),
)
