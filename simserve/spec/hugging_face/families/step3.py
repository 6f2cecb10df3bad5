"""Step of StepFun: 3.5 and 3.7, windows with more heads beside full attention, a gate for each head, experts behind the
first layers; 3, queries through a size of their own and one head of keys and values for all.

Keys and defaults: 3.5 and 3.7, transformers 5.24, step3p7, and the vendor's names by vLLM 0.33, models/step3p5.py; 3,
vLLM 0.33, models/step3_text.py and its configuration.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import DENSE, SPARSE, disagree
from simserve.spec.hugging_face.parts import check_top_k, dense, gated_activation, mixed_layers, num_layers
from simserve.spec.hugging_face.positions import stated_length
from simserve.spec.hugging_face.windows import is_window, windowed
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.mlp import Mixture
from simserve.spec.quantities import shown

_BESIDE = {
    "gate": ".moe.gate",
    "experts.0.": ".moe.experts.0.",
    "shared_experts.": ".share_expert.",
}
_MODULES = Modules(renamed=_BESIDE)


def _listed(keys: Keys, layers: int) -> list[bool] | None:
    """Whether each layer is in `moe_layers_enum`, a list or numbers between commas; None where it is not there."""
    value = keys.value("moe_layers_enum")
    if value is None:
        return None
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",") if word.strip()]
        wrong = next((word for word in words if not word.isdecimal()), None)
        if wrong is not None:
            raise keys.error("moe_layers_enum", f"expected numbers of layers between commas, got {shown(wrong)}")
        found = [int(word) for word in words]
    else:
        found = keys.wholes("moe_layers_enum") or []
    # Drafting layers, counted behind the last one, may stand in it, too.
    return [layer in found for layer in range(layers)]


def _is_dense(keys: Keys, layers: int, made: list[bool]) -> list[bool]:
    """Whether each layer is dense: three keys may say so, which have to agree."""
    words = keys.words("mlp_layer_types", known=(DENSE, SPARSE), length=layers)
    listed = _listed(keys, layers)
    first = keys.whole("first_k_dense_replace") if "first_k_dense_replace" in keys else None
    said = {
        "mlp_layer_types": None if words is None else [word == DENSE for word in words],
        "moe_layers_enum": None if listed is None else [not each for each in listed],
        "first_k_dense_replace": None if first is None else [layer < first for layer in range(layers)],
    }
    stated = {key: marks for key, marks in said.items() if marks is not None}
    for key, marks in stated.items():
        if marks != next(iter(stated.values())):
            raise disagree(keys, key, next(iter(stated)))
    return next(iter(stated.values()), made)


def _mixture(keys: Keys, experts: int, per_token: int, width: int) -> Mixture:
    gated_activation(keys)
    keys.expect("n_shared_experts", 1, why="is not known: this family has one shared expert, of share_expert_dim")
    keys.expect("use_moe", True, why="is not known: this family has experts")
    keys.expect("moe_every_n_layer", 1, why="is not known: moe_layers_enum says which layers have experts")
    keys.expect("moe_layer_offset", 0, why="is not known: moe_layers_enum says which layers have experts")
    mixture = Mixture(
        num_experts=keys.count(
            "moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts", default=experts
        ),
        experts_per_token=keys.count("moe_top_k", "num_experts_per_tok", default=per_token),
        width=keys.count("moe_intermediate_size", default=width),
        num_shared_experts=1,
        shared_width=keys.count("share_expert_dim", "share_expert_dims", default=width),
    )
    return check_top_k(keys, mixture, "moe_top_k")


def _divided(keys: Keys, heads: int, kv_heads: int) -> None:
    if heads % kv_heads:
        raise keys.error("num_attention_groups", f"{kv_heads} heads of keys do not divide {heads} heads of queries")


def _full(keys: Keys) -> GroupedAttention:
    heads = keys.count("num_attention_heads", default=64)
    kv_heads = keys.count("num_attention_groups", "num_key_value_heads", default=8)
    _divided(keys, heads, kv_heads)
    keys.expect("att_impl_type", "GQA", why="is an attention that this family is not known to have")
    bias = keys.flag("attention_bias", default=False)
    return GroupedAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=keys.count("head_dim", default=128),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
        gate="head" if keys.flag("use_head_wise_attn_gate", default=True) else "none",
    )


def _sliding_heads(keys: Keys, full: GroupedAttention) -> int | None:
    """Query heads of the layers with a window; None where no key says. Keys and values are those of the others."""
    section = keys.section("attention_other_setting")
    stated = keys.count("num_sliding_attention_heads") if "num_sliding_attention_heads" in keys else None
    if section is None:
        return stated
    section.expect("attention_type", "sliding_attention", why="is a kind of layer that has no setting of its own")
    same = f"differs from that of the other layers, which is what the class takes: {full.num_kv_heads}"
    section.expect("num_attention_groups", full.num_kv_heads, why=same)
    for name in ("head_dim", "true_head_dim"):
        section.expect(
            name, full.head_dim, why=f"differs from head_dim, {full.head_dim}, which is what the class takes"
        )
    own = section.count("num_attention_heads", default=full.num_heads)
    if stated is not None and own != stated:
        raise disagree(keys, "num_sliding_attention_heads", "attention_other_setting")
    return own


def _step3p5(keys: Keys) -> Decoder:
    layers, full = num_layers(keys), _full(keys)
    heads = _sliding_heads(keys, full)
    _divided(keys, heads or full.num_heads, full.num_kv_heads)
    marks = is_window(keys, layers, 1)
    limited = windowed(keys, full.model_copy(update={"num_heads": heads or full.num_heads}), marks, None)
    mixture = _mixture(keys, 288, 8, 1280)
    is_dense = _is_dense(keys, layers, [layer < 3 for layer in range(layers)])
    mlp = dense(keys, bias=keys.flag("mlp_bias", default=False))
    rows = mixed_layers(
        [one if mark else full for one, mark in zip(limited, marks, strict=True)],
        lambda layer: is_dense[layer],
        mlp,
        mixture,
    )
    guessed = (
        f"nothing says how many heads of queries layers with a window have: taken as {full.num_heads}, as the others; "
        "published models of this family have 96, in attention_other_setting"
    )
    return Decoder(
        keys.count("hidden_size"),
        keys.count("vocab_size"),
        rows,
        keys.flag("tie_word_embeddings", default=False),
        stated_length(keys, 128000),
        drafting_layers=keys.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, null=0),
        modules=_MODULES,
        warnings=(guessed,) if any(marks) and heads is None else (),
    )


def _step3(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    attention = GroupedAttention(
        num_heads=keys.count("num_attention_heads", default=64),
        num_kv_heads=1,
        head_dim=keys.count("head_dim", default=256),
        q_lora_rank=keys.count("share_q_dim", default=2048),
    )
    keys.expect("num_attention_groups", 1, why="is not what the class does: one head of keys and values serves all")
    mixture = _mixture(keys, 48, 3, 5120)
    behind = [not 4 <= layer <= 59 for layer in range(layers)]
    is_dense = _is_dense(keys, layers, behind)
    rows = mixed_layers([attention] * layers, lambda layer: is_dense[layer], dense(keys), mixture)
    return Decoder(
        keys.count("hidden_size"),
        keys.count("vocab_size"),
        rows,
        keys.flag("tie_word_embeddings", default=False),
        stated_length(keys, keys.count("max_position_embedding", default=65536)),
        modules=_MODULES,
    )


_HARMLESS = (
    *("swiglu_limits", "swiglu_limits_shared", "norm_expert_weight", "need_fp32_gate", "zero_centered"),
    *("moe_router_activation", "moe_router_scaling_factor", "use_moe_router_bias"),
    *("partial_rotary_factors", "use_rope_layers", "yarn_only_types", "mtp_layer_types", "mtp_mlp_layer_types"),
)
"""Bounds and factors of values, how the router compares its scores and the bias of its choice, which classes do not
count as a parameter; positions; layers that propose drafts.
"""

FAMILIES = (
    Family(
        "step3p5",
        ("step3p5", "step3p7"),
        ("Step3p5ForCausalLM", "Step3p7FlashForCausalLM"),
        _step3p5,
        _HARMLESS,
    ),
    Family("step3_text", ("step3_text",), ("Step3TextForCausalLM",), _step3, _HARMLESS),
)
