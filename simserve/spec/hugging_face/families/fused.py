"""Decoders with names of their own for fused projections: Qwen 1 and ChatGLM 2 to GLM 4.

Keys and defaults: the classes that their files name (configuration_qwen.py; configuration_chatglm.py, of which vLLM
0.33 has a copy, transformers_utils/configs/chatglm.py).
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.positions import stated_length
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp


def _qwen(keys: Keys) -> Decoder:
    """`intermediate_size` counts gate and up together; queries, keys and values have biases."""
    hidden, heads = keys.count("hidden_size", default=4096), keys.count("num_attention_heads", default=32)
    head_dim, both = keys.count("kv_channels", default=128), keys.count("intermediate_size", default=22016)
    if heads * head_dim != hidden:
        raise keys.error("kv_channels", f"{head_dim} of {heads} heads are not hidden_size, {hidden}")
    if both % 2:
        raise keys.error("intermediate_size", f"expected gate and up together, an even number, got {both}")
    keys.expect("use_cache_quantization", False, why="is a cache in int8 of the class itself; state kv_dtype instead")
    bias = not keys.flag("no_bias", default=True)
    attention = GroupedAttention(
        num_heads=heads, num_kv_heads=heads, head_dim=head_dim, qkv_bias=True, output_bias=bias
    )
    layer = LayerSpec(attention=attention, mlp=DenseMlp(width=both // 2, bias=bias))
    return Decoder(
        hidden,
        keys.count("vocab_size", default=151936),
        [layer] * keys.count("num_hidden_layers", default=32),
        keys.flag("tie_word_embeddings", default=False),
        stated_length(keys, 8192),
        modules=_QWEN,
    )


def _chatglm(keys: Keys) -> Decoder:
    keys.expect("rmsnorm", True, why="is a norm with biases, which is not modelled")
    keys.expect("post_layer_norm", True, why="leaves out the last norm, which is not modelled")
    keys.expect("pre_seq_len", 0, why="are tokens of prompt tuning before each prompt, which are not modelled")
    keys.expect("quantization_bit", 0, why="are weights in a format of the class itself, which is not modelled")
    heads, bias = keys.count("num_attention_heads", default=32), keys.flag("add_bias_linear", default=False)
    groups = keys.count("multi_query_group_num", "num_key_value_heads", "n_head_kv", default=1)
    kv_heads = groups if keys.flag("multi_query_attention", default=False) else heads
    if heads % kv_heads:
        raise keys.error("multi_query_group_num", f"{kv_heads} does not divide num_attention_heads {heads}")
    attention = GroupedAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=keys.count("kv_channels", default=128),
        qkv_bias=keys.flag("add_qkv_bias", default=False) or bias,
        output_bias=bias,
    )
    layer = LayerSpec(attention=attention, mlp=DenseMlp(width=keys.count("ffn_hidden_size", default=13696), bias=bias))
    return Decoder(
        keys.count("hidden_size", default=4096),
        keys.count("padded_vocab_size", "vocab_size", default=65024),
        [layer] * keys.count("num_layers", "num_hidden_layers", default=28),
        keys.flag("tie_word_embeddings", default=False),
        stated_length(keys, 2048),
        modules=_CHATGLM,
    )


_QWEN = Modules(
    layers="transformer.h",
    attention="attn",
    renamed={
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "c_attn"),
        "o_proj": "c_proj",
        "gate_proj": "w2",
        "up_proj": "w1",
        "down_proj": "c_proj",
    },
)
_CHATGLM = Modules(
    layers="transformer.encoder.layers",
    attention="self_attention",
    renamed={
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "query_key_value"),
        "o_proj": "dense",
        "gate_proj": "dense_h_to_4h",
        "up_proj": "dense_h_to_4h",
        "down_proj": "dense_4h_to_h",
    },
)
_QWEN_HARMLESS = (
    *("attn_dropout_prob", "emb_dropout_prob", "bf16", "fp16", "fp32", "onnx_safe", "scale_attn_weights"),
    *("softmax_in_fp32", "use_cache_kernel", "use_dynamic_ntk", "use_logn_attn"),
)
"""Training; number formats of the class itself, which servers do not read; kernels; how positions turn queries and
keys.
"""
_CHATGLM_HARMLESS = (
    *("apply_query_key_layer_scaling", "apply_residual_connection_post_layernorm", "attention_softmax_in_fp32"),
    *("bias_dropout_fusion", "fp32_residual_connection", "interleaved_qkv", "original_rope", "prefix_projection"),
)
"""Order and number formats of values inside a layer."""

FAMILIES = (
    Family("qwen", ("qwen",), ("QWenLMHeadModel",), _qwen, _QWEN_HARMLESS),
    Family(
        "chatglm",
        ("chatglm",),
        ("ChatGLMModel", "ChatGLMForConditionalGeneration", "ChatGLMForCausalLM"),
        _chatglm,
        _CHATGLM_HARMLESS,
    ),
)
