"""Llama-Nemotron (NAS): Llama layers of which a search took some attentions and MLPs out, and gave each its width.

Keys: the class that its files name, and vLLM 0.33, model_executor/models/nemotron_nas.py.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import decoder, gated_activation, grouped, num_layers
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp
from simserve.spec.quantities import shown

_MULTIPLE = 256
"""Widths are rounded up to it."""


def _block(keys: Keys, index: int, place: str, stated: object) -> Keys:
    if not isinstance(stated, dict):
        raise keys.error("block_configs", f"layer {index}: {place}: expected a mapping, got {shown(stated)}")
    return Keys(stated, keys.model, f"config.json: block_configs: layer {index}: {place}")


def _attention(keys: Keys, base: GroupedAttention) -> GroupedAttention | None:
    keys.expect("replace_with_linear", False, why="puts a linear layer in its place, which is not modelled")
    keys.expect("window_length", why="is a window, which is not modelled in this family")
    keys.expect("num_sink_tokens", why="are sink tokens, which are not modelled in this family")
    keys.expect("sparsify", why="leaves weights out, which is not modelled")
    keys.expect("unshifted_sink", False, why="is not modelled")
    keys.expect("use_prefill_window_in_sink_attention", False, why="is not modelled")
    missing = keys.flag("no_op", default=False)
    if missing:
        keys.know("n_heads_in_group")
        return None
    group = keys.count("n_heads_in_group")
    if base.num_heads % group:
        raise keys.error("n_heads_in_group", f"{group} does not divide num_attention_heads {base.num_heads}")
    return base.model_copy(update={"num_kv_heads": base.num_heads // group})


def _mlp(keys: Keys, hidden: int, *, bias: bool) -> DenseMlp | None:
    keys.expect("replace_with_linear", False, why="puts a linear layer in its place, which is not modelled")
    keys.expect("sparsify", why="leaves weights out, which is not modelled")
    gated_activation(keys)
    if keys.flag("no_op", default=False):
        keys.know("ffn_mult", "intermediate_size")
        return None
    if "ffn_mult" not in keys:
        return DenseMlp(width=keys.count("intermediate_size"), bias=bias)
    width = int(2 * keys.factor("ffn_mult") * hidden / 3)
    return DenseMlp(width=-(-width // _MULTIPLE) * _MULTIPLE, bias=bias)


def _nemotron_nas(keys: Keys) -> Decoder:
    layers, hidden = num_layers(keys), keys.count("hidden_size")
    bias = keys.flag("attention_bias", "bias", default=False)
    base = grouped(keys, qkv_bias=keys.flag("qkv_bias", default=bias), output_bias=bias)
    gated_activation(keys)
    keys.expect("intermediate_size", why="is one width for all MLPs, yet block_configs has one for each")
    mlp_bias = keys.flag("mlp_bias", default=False)
    blocks = keys.items("block_configs", length=layers)
    if blocks is None:
        raise keys.error("block_configs", "is needed and not given: an attention and an ffn for each layer")
    rows, unread = [], []
    for index, block in enumerate(blocks):
        whole = _block(keys, index, "block", block)
        parts = [whole.section(name) for name in ("attention", "ffn")]
        if parts[0] is None or parts[1] is None:
            raise keys.error("block_configs", f"layer {index}: expected attention and ffn, got {shown(block)}")
        attention, mlp = _attention(parts[0], base), _mlp(parts[1], hidden, bias=mlp_bias)
        rows.append(LayerSpec(attention=attention, mlp=mlp, norms=(attention is not None) + (mlp is not None)))
        unread += [*whole.unread()]
    if unread:
        place, key, value = unread[0]
        raise keys.error("block_configs", f"{place}: {key}: {shown(value)} is not known for the family nemotron-nas")
    return decoder(keys, rows, tied=False, max_positions=2048)


FAMILIES = (Family("nemotron-nas", ("nemotron-nas", "deci"), ("DeciLMForCausalLM",), _nemotron_nas),)
