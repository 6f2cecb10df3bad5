"""Zamba2: Mamba-2 layers, some behind one of few transformer blocks that they share.

Keys and defaults: transformers 5.24, zamba2.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import GATED, decoder
from simserve.spec.hugging_face.states import STATE_SPACE, expanded
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.shared import SharedTransformer
from simserve.spec.layers.state_space import Mamba2

_MAMBA, _HYBRID = ("mamba", "linear_attention"), "hybrid"
_PLACES = (6, 12, 18, 24, 30, 36, 42, 47, 51)
"""Layers with a transformer block where the file has no list."""


def _mamba(keys: Keys, hidden: int) -> Mamba2:
    width = expanded(keys, hidden, "mamba_expand")
    heads, groups = keys.count("n_mamba_heads", default=8), keys.count("mamba_ngroups", default=1)
    if width % heads or heads % groups:
        raise keys.error("n_mamba_heads", f"{heads} does not divide {width} channels, or mamba_ngroups {groups} them")
    keys.expect("mamba_headdim", width // heads, why="is not what mamba_expand and n_mamba_heads make")
    keys.expect("use_conv_bias", True, why="is not known: the convolution of this family has a bias")
    return Mamba2(
        num_heads=heads,
        head_dim=width // heads,
        num_groups=groups,
        state_size=keys.count("mamba_d_state", default=64),
        conv_kernel=keys.count("mamba_d_conv", default=4),
        bias=keys.flag("add_bias_linear", default=False),
    )


def _shared(keys: Keys, hidden: int, mamba: Mamba2) -> SharedTransformer:
    keys.expect("hidden_act", *GATED, why="is not an activation that this family is known to have a gate with")
    heads = keys.count("num_attention_heads", default=32)
    kv = keys.count("num_key_value_heads", default=heads, null=heads)
    if 2 * hidden % heads or heads % kv:
        raise keys.error("num_attention_heads", f"{heads} does not divide {2 * hidden}, or num_key_value_heads {kv} it")
    dim = 2 * hidden // heads
    for name, own in (("attention_head_dim", dim), ("head_dim", dim), ("attention_hidden_size", 2 * hidden)):
        keys.expect(name, own, why="is not what twice the hidden size and the heads make")
    keys.expect("kv_channels", hidden // heads, why="is not hidden_size over num_attention_heads")
    keys.expect("num_query_groups", heads, kv, why="is not num_attention_heads")
    rank = keys.count("adapter_rank", default=128)
    keys.expect("use_shared_mlp_adapter", True, why="is not known: the shared MLP has adapters in this family")
    keys.expect("use_shared_block_lora", True, why="is not known: the shared MLP has adapters in this family")
    adapted = keys.flag("use_shared_attention_adapter", "use_shared_attention_lora", default=False)
    if adapted and kv != heads:
        raise keys.error("num_key_value_heads", f"{kv} beside adapters of {heads} heads is not modelled")
    return SharedTransformer(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=dim,
        mlp_width=keys.count("intermediate_size", "ffn_hidden_size", default=4 * hidden, null=4 * hidden),
        mlp_bias=mamba.bias,
        attention_adapter=rank if adapted else 0,
        mlp_adapter=rank,
        owner=False,
        mamba=mamba,
    )


def _zamba2(keys: Keys) -> Decoder:
    layers, hidden = keys.count("num_hidden_layers", default=54), keys.count("hidden_size", default=2560)
    kinds = keys.words("layers_block_type", known=(*_MAMBA, _HYBRID), length=layers)
    if kinds is None:
        if layers != 54:
            raise keys.error(
                "layers_block_type", f"is needed and not given: the class has one for 54 layers, not {layers}"
            )
        kinds = [_HYBRID if layer in _PLACES else _MAMBA[0] for layer in range(layers)]
    places = [layer for layer, kind in enumerate(kinds) if kind == _HYBRID]
    stated = keys.wholes("hybrid_layer_ids")
    if stated is not None and stated != places:
        raise keys.error("hybrid_layer_ids", "names other layers than layers_block_type")
    blocks = keys.count("num_mem_blocks", default=1)
    mamba = _mamba(keys, hidden)
    shared = _shared(keys, hidden, mamba)
    owners = places[:blocks]
    rows = [
        LayerSpec(attention=shared.model_copy(update={"owner": layer in owners}) if kind == _HYBRID else mamba, norms=1)
        for layer, kind in enumerate(kinds)
    ]
    is_long = keys.flag("use_long_context", default=False)
    found = decoder(keys, rows, tied=True, max_positions=4096, modules=_MODULES)
    return found._replace(max_positions=16384) if is_long else found


_MODULES = Modules(attention="mamba")

_HARMLESS = ("use_mem_rope", "use_mem_eff_path")
"""Positions; which kernel computes."""

FAMILIES = (Family("zamba2", ("zamba2",), ("Zamba2ForCausalLM",), _zamba2, (*STATE_SPACE, *_HARMLESS)),)
