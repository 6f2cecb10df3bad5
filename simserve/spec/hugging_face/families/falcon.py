"""Falcon and BLOOM: an MLP of four times the hidden size without a gate, tied embeddings; Falcon with one head of keys
and values and both blocks side by side, or as new files have it, with groups of heads.

Keys and defaults: transformers 5.24, falcon and bloom.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.positions import stated_length
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp

_MODULES = Modules(
    layers="transformer.h",
    attention="self_attention",
    renamed={
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "query_key_value"),
        "o_proj": "dense",
        "up_proj": "dense_h_to_4h",
        "down_proj": "dense_4h_to_h",
    },
)


def _attention(keys: Keys, hidden: int, heads: int, kv_heads: int, *, bias: bool) -> GroupedAttention:
    if hidden % heads or heads % kv_heads:
        raise keys.error(
            "num_attention_heads", f"{heads} do not divide hidden_size {hidden}, or {kv_heads} KV heads not them"
        )
    return GroupedAttention(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=hidden // heads, qkv_bias=bias, output_bias=bias
    )


def _decoder(keys: Keys, hidden: int, rows: list[LayerSpec]) -> Decoder:
    return Decoder(
        hidden,
        keys.count("vocab_size"),
        rows,
        keys.flag("tie_word_embeddings", default=True),
        stated_length(keys, 2048),
        extra_parameters={"bias of the last norm": hidden},
        modules=_MODULES,
    )


def _norms(keys: Keys, *, is_new: bool) -> int:
    """Norms of a layer: one in front of blocks side by side, or one for each block."""
    parallel = keys.flag("parallel_attn", default=True)
    if is_new:
        return keys.count("num_ln_in_parallel_attn", default=2, null=2)
    keys.expect("num_ln_in_parallel_attn", 1, why="is read by files of the new architecture only")
    return 1 if parallel else 2


def _falcon(keys: Keys) -> Decoder:
    hidden = keys.count("hidden_size", "n_embed", default=4544)
    heads = keys.count("num_attention_heads", "n_head", default=71)
    is_new = keys.flag("new_decoder_architecture", default=False)
    groups = keys.count("num_kv_heads", "n_head_kv", default=heads, null=heads)
    one = keys.flag("multi_query", default=True)
    kv_heads = groups if is_new else 1 if one else heads
    bias = keys.flag("bias", default=False)
    width = keys.count("ffn_hidden_size", default=4 * hidden, null=4 * hidden)
    layer = LayerSpec(
        attention=_attention(keys, hidden, heads, kv_heads, bias=bias),
        mlp=DenseMlp(width=width, gated=False, bias=bias),
        norms=2 * _norms(keys, is_new=is_new),
    )
    return _decoder(keys, hidden, [layer] * keys.count("num_hidden_layers", "n_layer", default=32))


def _bloom(keys: Keys) -> Decoder:
    hidden = keys.count("hidden_size", "n_embed", default=64)
    heads = keys.count("n_head", "num_attention_heads", default=8)
    layer = LayerSpec(
        attention=_attention(keys, hidden, heads, heads, bias=True),
        mlp=DenseMlp(width=4 * hidden, gated=False, bias=True),
        norms=4,
    )
    found = _decoder(keys, hidden, [layer] * keys.count("n_layer", "num_hidden_layers", default=2))
    return found._replace(extra_parameters=found.extra_parameters | {"norm of the embedding": 2 * hidden})


_HARMLESS = (
    *(
        "activation",
        "alibi",
        "apply_residual_connection_post_layernorm",
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
    ),
    *("masked_softmax_fusion", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact", "unk_token_id"),
)
"""A function of an MLP without a gate; how positions enter; which kernels were fused in training."""

FAMILIES = (
    Family(
        "falcon",
        ("falcon", "RefinedWeb", "RefinedWebModel"),
        ("FalconForCausalLM", "RWForCausalLM"),
        _falcon,
        _HARMLESS,
    ),
    Family("bloom", ("bloom",), ("BloomForCausalLM",), _bloom, _HARMLESS),
)
