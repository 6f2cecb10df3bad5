"""Mamba, Mamba-2 and Falcon-Mamba: state-space layers alone, without an MLP.

Keys and defaults: transformers 5.24, mamba, mamba2 and falcon_mamba.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import decoder
from simserve.spec.hugging_face.states import STATE_SPACE, expanded, positions, time_step_rank
from simserve.spec.layers.layer import Attention, LayerSpec
from simserve.spec.layers.state_space import Mamba1, Mamba2

_MODULES = Modules("backbone.layers", "mixer")


def _decoder(keys: Keys, mixer: Attention, layers: int, *, tied: bool) -> Decoder:
    longest, warnings = positions(keys)
    row = LayerSpec(attention=mixer, norms=1)
    found = decoder(keys, [row] * layers, tied=tied, max_positions=longest, modules=_MODULES)
    return found._replace(max_positions=longest, warnings=warnings)


def _mamba(keys: Keys) -> Decoder:
    hidden = keys.count("hidden_size", "d_model", default=768)
    width = expanded(keys, hidden)
    keys.expect("intermediate_size", width, why="is not expand times hidden_size")
    keys.expect("d_inner", width, why="is not expand times hidden_size")
    mixer = Mamba1(
        width=width,
        state_size=keys.count("state_size", default=16),
        conv_kernel=keys.count("conv_kernel", default=4),
        time_step_rank=time_step_rank(keys, "time_step_rank", hidden),
        conv_bias=keys.flag("use_conv_bias", default=True),
        bias=keys.flag("use_bias", default=False),
    )
    return _decoder(keys, mixer, keys.count("num_hidden_layers", "n_layer", default=32), tied=True)


def _mamba2(keys: Keys) -> Decoder:
    hidden = keys.count("hidden_size", default=4096)
    heads, dim = keys.count("num_heads", default=128), keys.count("head_dim", default=64)
    width = expanded(keys, hidden)
    if heads * dim != width:
        raise keys.error("num_heads", f"{heads} heads of {dim} do not make expand times hidden_size, {width}")
    groups = keys.count("n_groups", default=8)
    if heads % groups:
        raise keys.error("n_groups", f"{groups} does not divide num_heads {heads}")
    mixer = Mamba2(
        num_heads=heads,
        head_dim=dim,
        num_groups=groups,
        state_size=keys.count("state_size", default=128),
        conv_kernel=keys.count("conv_kernel", default=4),
        conv_bias=keys.flag("use_conv_bias", default=True),
        bias=keys.flag("use_bias", default=False),
    )
    return _decoder(keys, mixer, keys.count("num_hidden_layers", default=64), tied=False)


_OLD = ("rms_norm", "fused_add_norm", "ssm_cfg", "pad_vocab_size_multiple", "mixer_rms_eps", "use_falcon_mambapy")
"""Which kernel does a norm; a small number inside one."""
_OLD_2 = ("norm_before_gate", "rms_norm", "time_step_rank")
"""Whether the norm comes before the gate; a rank that the class computes and does not use."""

FAMILIES = (
    Family("mamba", ("mamba",), ("MambaForCausalLM",), _mamba, (*STATE_SPACE, *_OLD)),
    Family("falcon_mamba", ("falcon_mamba",), ("FalconMambaForCausalLM",), _mamba, (*STATE_SPACE, *_OLD)),
    Family("mamba2", ("mamba2",), ("Mamba2ForCausalLM",), _mamba2, (*STATE_SPACE, *_OLD_2)),
)
