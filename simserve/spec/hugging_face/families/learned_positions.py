"""Decoders with an embedding for each position: GPT-2, GPT-BigCode (StarCoder 1), OPT. Norms and projections have
biases, MLPs no gate.

Keys and defaults: transformers 5.24, gpt2, gpt_bigcode and opt.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise keys.error("num_attention_heads", f"{heads} do not divide the hidden size, {hidden}")
    return hidden // heads


def _decoder(keys: Keys, hidden: int, rows: list[LayerSpec], positions: int, modules: Modules) -> Decoder:
    return Decoder(
        hidden,
        keys.count("vocab_size"),
        rows,
        keys.flag("tie_word_embeddings", default=True),
        positions,
        extra_parameters={"bias of the last norm": hidden},
        learned_positions=positions,
        modules=modules,
    )


def _layer(heads: int, kv_heads: int, head_dim: int, width: int, *, bias: bool = True) -> LayerSpec:
    attention = GroupedAttention(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, qkv_bias=bias, output_bias=bias
    )
    return LayerSpec(attention=attention, mlp=DenseMlp(width=width, gated=False, bias=bias), norms=4)


def _gpt(keys: Keys, *, one_kv_head: bool) -> Decoder:
    hidden = keys.count("n_embd", "hidden_size", default=768)
    heads = keys.count("n_head", "num_attention_heads", default=12)
    layers = keys.count("n_layer", "num_hidden_layers", default=12)
    positions = keys.count("n_positions", "max_position_embeddings", default=1024)
    keys.expect("n_ctx", positions, why=f"differs from n_positions, {positions}")
    keys.expect("add_cross_attention", False, why="is attention to an encoder, which is not modelled")
    kv_heads = 1 if one_kv_head else heads
    keys.expect("num_key_value_heads", kv_heads, why=f"is not what multi_query makes it, {kv_heads}")
    width = keys.count("n_inner", default=4 * hidden, null=4 * hidden)
    layer = _layer(heads, kv_heads, _head_dim(keys, hidden, heads), width)
    return _decoder(keys, hidden, [layer] * layers, positions, _MODULES)


def _gpt2(keys: Keys) -> Decoder:
    return _gpt(keys, one_kv_head=False)


def _gpt_bigcode(keys: Keys) -> Decoder:
    return _gpt(keys, one_kv_head=keys.flag("multi_query", default=True))


def _opt(keys: Keys) -> Decoder:
    """Two positions more than stated have an embedding: the class counts them from 2 on."""
    hidden, heads = keys.count("hidden_size", default=768), keys.count("num_attention_heads", default=12)
    keys.expect("word_embed_proj_dim", hidden, why="differs from hidden_size: embeddings of that size are not modelled")
    keys.expect("do_layer_norm_before", True, why="puts norms behind the blocks, which is not modelled")
    keys.expect("_remove_final_layer_norm", False, why="leaves out the last norm, which is not modelled")
    keys.expect("layer_norm_elementwise_affine", True, why="is a norm without weights, which is not modelled")
    bias = keys.flag("enable_bias", default=True)
    positions = keys.count("max_position_embeddings", default=2048)
    width = keys.count("ffn_dim", default=3072)
    layer = _layer(heads, heads, _head_dim(keys, hidden, heads), width, bias=bias)
    rows = [layer] * keys.count("num_hidden_layers", default=12)
    found = _decoder(keys, hidden, rows, positions, _OPT_MODULES)
    return found._replace(learned_positions=positions + 2)


_MODULES = Modules(
    layers="transformer.h",
    attention="attn",
    renamed={
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "c_attn"),
        "o_proj": "c_proj",
        "up_proj": "c_fc",
        "down_proj": "c_proj",
    },
)
_OPT_MODULES = Modules(
    layers="model.decoder.layers", renamed={"o_proj": "out_proj", "up_proj": ".fc1", "down_proj": ".fc2"}
)
_HARMLESS = (
    *("activation_function", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"),
    *("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "validate_runner_input"),
    *("pre_allocate_kv_cache", "max_sequence_length", "max_batch_size", "fused_attn_kernel"),
    *("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"),
)
"""A function of an MLP without a gate; factors and number formats inside attention; what other programs do with the
file; a head for classification.
"""
_OPT = ("activation_function", "activation_dropout", "layerdrop", "init_std")

FAMILIES = (
    Family("gpt2", ("gpt2",), ("GPT2LMHeadModel",), _gpt2, _HARMLESS),
    Family("gpt_bigcode", ("gpt_bigcode",), ("GPTBigCodeForCausalLM",), _gpt_bigcode, _HARMLESS),
    Family("opt", ("opt",), ("OPTForCausalLM",), _opt, _OPT),
)
