"""Latent attention and the mixtures beside it, of the keys that DeepSeek's classes and those after them share."""

from collections.abc import Sequence

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import check_top_k, gated_activation
from simserve.spec.layers.attention import LatentAttention
from simserve.spec.layers.mlp import Mixture

DENSE, SPARSE = "dense", "sparse"


def latent(keys: Keys, defaults: dict[str, int], *, q_lora_rank: int | None = None) -> LatentAttention:
    """Latent attention. `defaults`: the class's, by key; `q_lora_rank`: its default, 0 is a projection of the hidden
    size itself, and so is a null.

    Raises:
        ScenarioError: `num_key_value_heads` or `qk_head_dim` that are not what the other keys make them.
    """
    heads = keys.count("num_attention_heads", default=defaults.get("num_attention_heads"))
    nope = keys.count("qk_nope_head_dim", default=defaults.get("qk_nope_head_dim"))
    rope = keys.whole("qk_rope_head_dim", default=defaults.get("qk_rope_head_dim"))
    keys.expect("num_key_value_heads", heads, why="differs from num_attention_heads, yet a latent serves all heads")
    keys.expect("qk_head_dim", nope + rope, why="is not qk_nope_head_dim + qk_rope_head_dim")
    return LatentAttention(
        num_heads=heads,
        q_lora_rank=keys.whole("q_lora_rank", default=q_lora_rank, null=0),
        qk_rope_head_dim=rope,
        bias=keys.flag("attention_bias", default=False),
        kv_lora_rank=keys.count("kv_lora_rank", default=defaults.get("kv_lora_rank")),
        qk_nope_head_dim=nope,
        v_head_dim=keys.count("v_head_dim", default=defaults.get("v_head_dim")),
    )


def routed(keys: Keys, defaults: dict[str, int], *spellings: str) -> Mixture:
    """Routed and shared experts of the keys of DeepSeek-V3. `defaults`: the class's, by key; `spellings`: other names
    of `n_routed_experts`.
    """
    gated_activation(keys)
    mixture = Mixture(
        num_experts=keys.count("n_routed_experts", *spellings, default=defaults.get("n_routed_experts")),
        experts_per_token=keys.count("num_experts_per_tok", default=defaults.get("num_experts_per_tok")),
        width=(width := keys.count("moe_intermediate_size", default=defaults.get("moe_intermediate_size"))),
        num_shared_experts=keys.whole("n_shared_experts", default=defaults.get("n_shared_experts"), null=0),
        shared_width=width,
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def dense_layers(keys: Keys, layers: int, default: int) -> list[bool]:
    """Whether each layer is dense: the first `first_k_dense_replace`, and of the others those that are no multiple of
    `moe_layer_freq`; `mlp_layer_types` says the same.

    Raises:
        ScenarioError: it says something else.
    """
    first, every = keys.whole("first_k_dense_replace", default=default), keys.count("moe_layer_freq", default=1)
    found = [layer < first or layer % every != 0 for layer in range(layers)]
    types = keys.words("mlp_layer_types", known=(DENSE, SPARSE), length=layers)
    if types is None:
        return found
    stated = [kind == DENSE for kind in types]
    if stated != found and ("first_k_dense_replace" in keys or "moe_layer_freq" in keys):
        raise disagree(keys, "mlp_layer_types", "first_k_dense_replace and moe_layer_freq")
    return stated


def disagree(keys: Keys, key: str, other: str) -> Exception:
    """The error for two keys that say different things of the same layers."""
    return keys.error(key, f"says of other layers the same as {other}; correct one of them, or remove it")


def pattern(
    keys: Keys, key: str, stated: Sequence[object] | None, made: Sequence[object], other: str
) -> Sequence[object]:
    """What a list states for each layer; where it is absent, what `other` makes of it.

    Raises:
        ScenarioError: both are there and differ.
    """
    if stated is None:
        return made
    if other in keys and list(stated) != list(made):
        raise disagree(keys, key, other)
    return stated
