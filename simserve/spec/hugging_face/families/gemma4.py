"""Gemma 4: five layers with a window, then one of full attention with heads of its own; a dense MLP, or one beside
experts; the last layers may read the keys and values of earlier ones; small models have an embedding for each layer.

Keys and defaults: transformers 5.24, gemma4; keys and values are both cached where one projection makes them: vLLM
0.33, models/gemma4.py.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import FULL, SLIDING, check_top_k, decoder, gated_activation, grouped, num_layers
from simserve.spec.hugging_face.windows import last_ones_read
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec, Mlp
from simserve.spec.layers.mlp import DenseMlp, Mixture

_MODULES = Modules(renamed={"gate": ".router.proj", "experts.0.": ".experts.0.", "residual.": ""})


def _kinds(keys: Keys, layers: int) -> tuple[list[str], tuple[str, ...]]:
    """The kind of each layer, with what to say of it: the class makes the last one full, whatever the list says."""
    kinds = keys.words("layer_types", known=(FULL, SLIDING), length=layers)
    if kinds is None:
        kinds = [SLIDING if (layer + 1) % 6 else FULL for layer in range(layers)]
        return [*kinds[:-1], FULL], ()
    said = "the last of its layer_types is sliding_attention: taken as full_attention, as the class does"
    return [*kinds[:-1], FULL], (said,) if kinds[-1] != FULL else ()


def _attentions(keys: Keys, kinds: list[str], shared: int) -> list[GroupedAttention]:
    """Attention of each layer, of which the last `shared` read what earlier ones of their kind keep."""
    bias = keys.flag("attention_bias", default=False)
    base = grouped(keys, kv_heads=4, head_dim=256, qkv_bias=bias, output_bias=bias, qk_norm="head")
    keys.expect("use_bidirectional_attention", "vision", why="is attention to later tokens, too, which is not modelled")
    one_projection = keys.flag("attention_k_eq_v", default=False)
    kv_heads = keys.count("num_global_key_value_heads", default=base.num_kv_heads, null=base.num_kv_heads)
    if kv_heads != base.num_kv_heads and not one_projection:
        raise keys.error(
            "num_global_key_value_heads", "is read beside attention_k_eq_v: true only; correct one of them"
        )
    if base.num_heads % kv_heads:
        raise keys.error("num_global_key_value_heads", f"{kv_heads} does not divide num_attention_heads")
    full = {
        "head_dim": keys.count("global_head_dim", default=512),
        "num_kv_heads": kv_heads,
        "keys_are_values": one_projection,
    }
    by_kind = {
        SLIDING: base.model_copy(update={"window": keys.count("sliding_window", default=512)}),
        FULL: base.model_copy(update=full),
    }
    return last_ones_read(keys, [by_kind[kind] for kind in kinds], kinds, shared)


def _mlp(keys: Keys, width: int) -> Mlp:
    """The dense MLP, with experts beside it where the file has them."""
    if not keys.flag("enable_moe_block", default=False):
        for name in ("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size"):
            keys.expect(name, why="is of experts, yet enable_moe_block is not true; correct one of them")
        return DenseMlp(width=width)
    experts = keys.count("num_experts")
    mixture = Mixture(
        num_experts=experts,
        experts_per_token=keys.count("top_k_experts"),
        width=keys.count("moe_intermediate_size", "expert_intermediate_size"),
        residual_width=width,
        norms=3,
        extra_vectors=keys.count("hidden_size") + experts,
    )
    return check_top_k(keys, mixture, "top_k_experts")


def _layers(keys: Keys, kinds: list[str], per_layer: int) -> list[LayerSpec]:
    shared = keys.whole("num_kv_shared_layers", default=0)
    gated_activation(keys)
    width, hidden = keys.count("intermediate_size", default=9216), keys.count("hidden_size")
    wide = 2 * width if keys.flag("use_double_wide_mlp", default=False) else width
    mlps = [_mlp(keys, width), _mlp(keys, wide)]
    return [
        LayerSpec(
            attention=attention,
            mlp=mlps[layer >= len(kinds) - shared],
            norms=5 if per_layer else 4,
            extra_parameters=2 * hidden * per_layer,
        )
        for layer, attention in enumerate(_attentions(keys, kinds, shared))
    ]


def _gemma4(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    kinds, warnings = _kinds(keys, layers)
    per_layer = keys.whole("hidden_size_per_layer_input", default=256, null=0)
    rows = _layers(keys, kinds, per_layer)
    found = decoder(keys, rows, tied=True, max_positions=131072, modules=_MODULES)._replace(warnings=warnings)
    words = keys.count("vocab_size_per_layer_input", default=262144, null=1 if not per_layer else None)
    return with_layer_inputs(found, layers * per_layer, words, norm=per_layer) if per_layer else found


def with_layer_inputs(found: Decoder, width: int, words: int, *, norm: int) -> Decoder:
    """The decoder with an embedding for each layer: a table of `words` rows and a projection of the hidden size, both
    `width` wide for all layers together. They weigh, their work is left out.
    """
    table = {
        "embeddings of each layer": words * width,
        "projection to the inputs of each layer": found.hidden_size * width + norm,
    }
    return found._replace(extra_parameters=table, left_out=("the work of the inputs of each layer",))


FAMILIES = (Family("gemma4", ("gemma4_text",), ("Gemma4ForCausalLM",), _gemma4),)
