"""Nemotron-H and Nemotron 3: each layer is one block, Mamba-2, attention, a dense MLP or a mixture of experts.

Keys and defaults: transformers 5.24, nemotron_h; what the state is kept in: vLLM 0.33, models/config.py.
"""

from typing import Any

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import pattern
from simserve.spec.hugging_face.parts import check_top_k, decoder, grouped
from simserve.spec.hugging_face.states import state_dtype
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp, Mixture
from simserve.spec.layers.state_space import Mamba2
from simserve.spec.quantities import shown

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS = {word: word for word in _LETTERS.values()} | {"linear_attention": "mamba", "full_attention": "attention"}
_NO_GATE = ("relu2", "relu", "gelu", "silu")


def _kinds(keys: Keys, words_key: str, letters_key: str) -> list[str] | None:
    """Kind of each layer by a list of words, or by a text with a letter for each; None where neither is there."""
    words = keys.words(words_key, known=tuple(_WORDS))
    letters = keys.text(letters_key, default="")
    unknown = next((letter for letter in letters if letter not in _LETTERS), None)
    if unknown is not None:
        raise keys.error(letters_key, f"expected the letters {', '.join(_LETTERS)}, got {shown(unknown)}")
    made = [_LETTERS[letter] for letter in letters]
    stated = None if words is None else [_WORDS[word] for word in words]
    return [str(kind) for kind in pattern(keys, words_key, stated, made, letters_key)] or None


def _mamba(keys: Keys) -> Mamba2:
    """Its sizes. `expand` is a decoy: the width is that of all heads."""
    return Mamba2(
        num_heads=keys.count("mamba_num_heads", default=128),
        head_dim=keys.count("mamba_head_dim", default=64),
        num_groups=keys.count("n_groups", "mamba_n_groups", default=8),
        state_size=keys.count("ssm_state_size", default=128),
        conv_kernel=keys.count("conv_kernel", "mamba_d_conv", default=4),
        conv_bias=keys.flag("use_conv_bias", "mamba_conv_bias", default=True),
        bias=keys.flag("use_bias", default=False),
        state_dtype=state_dtype(keys, "mamba_ssm_cache_dtype", "fp32"),
    )


def _mlp(keys: Keys) -> DenseMlp:
    return DenseMlp(width=keys.count("intermediate_size", default=21504), gated=False, bias=_bias(keys))


def _bias(keys: Keys) -> bool:
    return keys.flag("mlp_bias", default=False)


def _mixture(keys: Keys) -> Mixture:
    if _bias(keys):
        raise keys.error("mlp_bias", "true beside experts is not modelled: remove it, or set it to false")
    mixture = Mixture(
        num_experts=keys.count("n_routed_experts", default=8),
        experts_per_token=keys.count("num_experts_per_tok", default=2),
        width=keys.count("moe_intermediate_size", default=7688),
        gated=False,
        num_shared_experts=keys.whole("n_shared_experts", default=1, null=0),
        shared_width=keys.count("moe_shared_expert_intermediate_size", default=7688),
        latent_size=keys.whole("moe_latent_size", default=0, null=0),
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def _head_dim(keys: Keys) -> Keys:
    """Old files name the size of a head `attention_head_dim`."""
    old = keys.whole("attention_head_dim", default=0, null=0)
    return keys.with_defaults({"head_dim": old}) if old else keys


def _nemotron_h(keys: Keys) -> Decoder:
    kinds = _kinds(keys, "layers_block_type", "hybrid_override_pattern")
    if kinds is None:
        raise keys.error("layers_block_type", "is needed and not given, nor is hybrid_override_pattern")
    stated = keys.whole("num_hidden_layers", default=len(kinds), null=len(kinds))
    if stated != len(kinds):
        raise keys.error("num_hidden_layers", f"{stated}, yet the pattern of layers has {len(kinds)}")
    keys.expect("sliding_window", why="is a window that this family is not known to use; remove it")
    keys.expect("mlp_hidden_act", *_NO_GATE, why="is not an activation that this family is known to have no gate with")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(_head_dim(keys), kv_heads=8, head_dim=128, qkv_bias=bias, output_bias=bias)
    blocks: dict[str, dict[str, Any]] = {"attention": {"attention": attention}}
    makers = {"mamba": ("attention", _mamba), "mlp": ("mlp", _mlp), "moe": ("mlp", _mixture)}
    for kind, (place, make) in makers.items():
        if kind in kinds:
            blocks[kind] = {place: make(keys)}
        else:
            keys.know(*_KEYS[kind])
    layers = [LayerSpec(**blocks[kind], norms=1) for kind in kinds]
    drafts = keys.whole("num_nextn_predict_layers", default=0, null=0)
    drafted = _kinds(keys, "mtp_layers_block_type", "mtp_hybrid_override_pattern") or ["attention", "moe"]
    modules = Modules("backbone.layers", "mixer", "mixer")
    found = decoder(keys, layers, tied=False, max_positions=4096, modules=modules)
    return found._replace(drafting_layers=drafts * len(drafted))


_KEYS = {
    "mamba": (
        *("mamba_num_heads", "mamba_head_dim", "n_groups", "mamba_n_groups", "ssm_state_size", "conv_kernel"),
        *("mamba_d_conv", "use_conv_bias", "mamba_conv_bias", "use_bias", "mamba_ssm_cache_dtype"),
    ),
    "mlp": ("intermediate_size", "mlp_bias"),
    "moe": (
        *("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"),
        *("moe_shared_expert_intermediate_size", "moe_latent_size"),
    ),
}
"""Keys of blocks that a model may not have."""

_HARMLESS = (
    *("expand", "mamba_expand", "chunk_size", "mamba_chunk_size", "mamba_hidden_act", "mamba_proj_bias"),
    *("time_step_min", "time_step_max", "time_step_limit", "time_step_floor", "time_step_rank", "mamba_dt_min"),
    *("mamba_dt_max", "mamba_dt_limit", "mamba_dt_init_floor", "num_logits_to_keep", "use_mamba_kernels"),
    *("residual_in_fp32", "rescale_prenorm_residual", "moe_shared_expert_overlap"),
)
"""`expand` and `mamba_proj_bias`: the class reads neither for a size; the rest: initial values, chunks of a kernel."""

FAMILIES = (Family("nemotron_h", ("nemotron_h",), ("NemotronHForCausalLM",), _nemotron_h, _HARMLESS),)
