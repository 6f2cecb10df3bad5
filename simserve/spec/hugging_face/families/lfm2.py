"""LFM2 of Liquid AI: short convolutions, and full attention in some layers; dense, or a mixture behind the first ones.

Keys and defaults: transformers 5.24, lfm2 and lfm2_moe.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import FULL, check_top_k, decoder, grouped, num_layers
from simserve.spec.layers.layer import Attention, LayerSpec
from simserve.spec.layers.mlp import DenseMlp, Mixture
from simserve.spec.layers.state_space import ShortConv

_CONV = "conv"


def _attentions(keys: Keys, layers: int) -> list[Attention]:
    """Attention and convolutions. Where neither list is there, the dense class attends everywhere."""
    hidden = keys.count("hidden_size")
    attention = grouped(keys, kv_heads=8, qk_norm="head")
    keys.expect("conv_dim", hidden, why="is not hidden_size, the channels of the convolution")
    keys.expect("conv_dim_out", hidden, why="is not hidden_size, the channels of the convolution")
    conv = ShortConv(
        width=hidden,
        conv_kernel=keys.count("conv_L_cache", default=3),
        bias=keys.flag("conv_bias", default=False),
    )
    kinds = keys.words("layer_types", known=(FULL, _CONV), length=layers)
    places = keys.wholes("full_attn_idxs")
    wrong = next((place for place in places or () if place >= layers), None)
    if wrong is not None:
        raise keys.error("full_attn_idxs", f"names layer {wrong}, yet there are {layers}")
    by_places = [places is None or layer in places for layer in range(layers)]
    if kinds is None:
        attends = by_places
    else:
        attends = [kind == FULL for kind in kinds]
        if places is not None and attends != by_places:
            raise keys.error("full_attn_idxs", "names other layers than layer_types; leave one of them")
    return [attention if each else conv for each in attends]


def _adjusted_width(keys: Keys, width: int) -> int:
    """Two thirds of the width that is stated, times a factor, rounded up."""
    if not keys.flag("block_auto_adjust_ff_dim", default=True):
        keys.know("block_ffn_dim_multiplier", "block_multiple_of")
        return width
    width = 2 * width // 3
    multiple = keys.count("block_multiple_of", default=256)
    if keys.is_null("block_ffn_dim_multiplier"):
        return width
    width = int(keys.factor("block_ffn_dim_multiplier", default=1.0) * width)
    return -(-width // multiple) * multiple


def _positions(keys: Keys) -> int:
    return keys.count("max_position_embeddings", default=128_000)


def _decoder(keys: Keys, layers: list[LayerSpec]) -> Decoder:
    old = keys.value("tie_embedding")
    if old is not None:
        keys.flag("tie_embedding", "tie_word_embeddings", default=True)
        keys = keys.with_defaults({"tie_word_embeddings": old})
    return decoder(keys, layers, tied=True, max_positions=_positions(keys), modules=_MODULES)


def _lfm2(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    stated = keys.count("block_ff_dim", default=keys.count("intermediate_size", default=12288))
    mlp = DenseMlp(width=_adjusted_width(keys, stated))
    return _decoder(keys, [LayerSpec(attention=each, mlp=mlp) for each in _attentions(keys, layers)])


def _lfm2_moe(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    mlp = DenseMlp(width=keys.count("intermediate_size", default=7168))
    mixture = Mixture(
        num_experts=keys.count("num_experts", default=32),
        experts_per_token=keys.count("num_experts_per_tok", default=4),
        width=keys.count("moe_intermediate_size", default=1792),
    )
    check_top_k(keys, mixture, "num_experts_per_tok")
    if "layer_types" not in keys and "full_attn_idxs" not in keys:
        raise keys.error("layer_types", "is needed and not given: full_attention or conv for each layer")
    first = keys.whole("num_dense_layers", default=2)
    rows = [
        LayerSpec(attention=each, mlp=mlp if layer < first else mixture)
        for layer, each in enumerate(_attentions(keys, layers))
    ]
    return _decoder(keys, rows)


_MODULES = Modules(
    mlp="feed_forward",
    renamed={
        "o_proj": "out_proj",
        "in_proj": ".conv.in_proj",
        "out_proj": ".conv.out_proj",
        "experts.0.gate_proj": "experts.0.w1",
        "experts.0.up_proj": "experts.0.w3",
        "experts.0.down_proj": "experts.0.w2",
        "gate_proj": "w1",
        "up_proj": "w3",
        "down_proj": "w2",
    },
)

_HARMLESS = (
    *("block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu"),
    *("block_use_xavier_init", "conv_use_xavier_init", "use_pos_enc", "theta", "num_heads", "use_expert_bias"),
)
"""How weights began; second spellings that the class does not read; a bias of the router's choice, which the class does
not count as a parameter.
"""

FAMILIES = (
    Family("lfm2", ("lfm2",), ("Lfm2ForCausalLM",), _lfm2, _HARMLESS),
    Family("lfm2_moe", ("lfm2_moe",), ("Lfm2MoeForCausalLM",), _lfm2_moe, _HARMLESS),
)
