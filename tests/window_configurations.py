"""Configurations of models with windows, and of dense ones, old and new: small ones of our own in the spelling of each
family, and facts of published files.

Counts of parameters: the classes of transformers 5.24 built on the meta device, where they are there; Qwen 1, ChatGLM,
Step 3, InternLM 2 and Baichuan by hand, as `tests/test_families_window.py` has it. Published models: the same classes,
those of vLLM 0.33 where they differ in what is cached.
"""

from typing import Any, NamedTuple

Config = dict[str, Any]

SLIDING, FULL = "sliding_attention", "full_attention"


class Small(NamedTuple):
    """A configuration, and what it should be read as; `windows`: layers with a window, by its length."""

    config: Config
    parameters: int
    windows: dict[int, int] = {}  # noqa: RUF012
    tied: bool = False


def turns(layers: int, every: int) -> list[str]:
    """Layers of which every so many is full."""
    return [FULL if (layer + 1) % every == 0 else SLIDING for layer in range(layers)]


def _usual(model_type: str, **other: Any) -> Config:
    found = {
        **{"model_type": model_type, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 5},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 4096},
        **other,
    }
    return {key: value for key, value in found.items() if value != "absent"}


_MOE = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
_INPUTS = {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 200, "head_dim": 16}
_OLD = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128, "vocab_size": 300}
_FALCON = {
    **{"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 300},
}

SMALL: dict[str, Small] = {
    "gemma": Small(_usual("gemma", head_dim=24, hidden_act="gelu", hidden_activation=None), 265664, tied=True),
    "gemma2": Small(_usual("gemma2", sliding_window=32, sliding_window_size=32), 1157184, {32: 3}, tied=True),
    "gemma3": Small(
        _usual("gemma3_text", num_hidden_layers=7, sliding_window_pattern=3), 1615936, {4096: 5}, tied=True
    ),
    "gemma3, its head untied": Small(
        _usual("gemma3_text", layer_types=turns(5, 2), sliding_window=48, tie_word_embeddings=False), 1178944, {48: 3}
    ),
    "gemma3n": Small(
        _usual("gemma3n_text", num_hidden_layers=10, num_kv_shared_layers=5, laurel_rank=8, **_INPUTS),
        *(535136, {512: 8}, True),
    ),
    "gemma3n, a width for each layer": Small(
        _usual(
            "gemma3n_text",
            **{"num_hidden_layers": 6, "num_kv_shared_layers": 0, "altup_num_inputs": 3, **_INPUTS},
            intermediate_size=[100, 110, 120, 130, 140, 150],
        ),
        *(344808, {512: 5}, True),
    ),
    "gemma4": Small(
        _usual(
            "gemma4_text",
            **{"num_hidden_layers": 7, "hidden_size_per_layer_input": 0, "head_dim": 16, "global_head_dim": 32},
            **{"attention_k_eq_v": True, "num_global_key_value_heads": 1, "sliding_window": 64},
        ),
        *(334688, {64: 5}, True),
    ),
    "gemma4 with experts": Small(
        _usual(
            "gemma4_text",
            **{"num_hidden_layers": 7, "hidden_size_per_layer_input": 0, "head_dim": 16, "enable_moe_block": True},
            **{"num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 24},
        ),
        *(1284234, {512: 5}, True),
    ),
    "gemma4 with an embedding for each layer": Small(
        _usual("gemma4_text", num_hidden_layers=14, num_kv_shared_layers=6, use_double_wide_mlp=True, **_INPUTS),
        *(1764592, {512: 11}, True),
    ),
    "gpt_oss": Small(_usual("gpt_oss", num_local_experts=6, num_experts_per_tok=2), 1222834, {128: 3}),
    "llama4": Small(
        _usual("llama4_text", interleave_moe_layer_step=2, num_local_experts=4, intermediate_size_mlp=90),
        890176,
        {8192: 4},
    ),
    "llama4, layers in lists": Small(
        _usual(
            "llama4_text",
            **{"moe_layers": [1, 4], "num_local_experts": 4, "intermediate_size_mlp": 90, "attention_chunk_size": 96},
            no_rope_layers=[1, 0, 1, 0, 0],
        ),
        *(890176, {96: 2}),
    ),
    "mimo_v2_flash": Small(
        _usual(
            "mimo_v2_flash",
            **{"layer_types": [FULL, SLIDING, SLIDING, FULL, FULL], "n_routed_experts": 6, **_MOE},
            **{"mlp_layer_types": ["dense", "sparse", "dense", "sparse", "sparse"], "v_head_dim": 16, "head_dim": 24},
        ),
        *(271688, {128: 2}),
    ),
    "step3p5": Small(
        _usual(
            "step3p5",
            **{"layer_types": [FULL, SLIDING, SLIDING, SLIDING, FULL], "sliding_window": 32, "moe_num_experts": 8},
            **{"moe_top_k": 2, "moe_intermediate_size": 24, "share_expert_dim": 40, "moe_layers_enum": "2,4"},
            **{"num_attention_groups": 2, "num_key_value_heads": "absent", "head_dim": 16},
            attention_other_setting={
                **{"attention_type": SLIDING, "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 16},
            },
        ),
        *(296928, {32: 3}),
    ),
    "cohere": Small(_usual("cohere", use_qk_norm=True), 235104, tied=True),
    "cohere2": Small(
        _usual("cohere2", sliding_window=32, sliding_window_pattern=4, use_embedding_sharing=True),
        234624,
        {32: 4},
        True,
    ),
    "olmo": Small(_usual("olmo", num_key_value_heads="absent", clip_qkv=8.0), 273920),
    "olmo2": Small(_usual("olmo2"), 254624),
    "olmo3": Small(_usual("olmo3", sliding_window=32), 254624, {32: 4}),
    "exaone4": Small(_usual("exaone4", sliding_window=32, sliding_window_pattern=4), 254304, {32: 4}),
    "exaone_moe": Small(
        _usual("exaone_moe", num_experts=6, num_shared_experts=2, first_k_dense_replace=2, sliding_window=32, **_MOE),
        *(273888, {32: 4}),
    ),
    "afmoe": Small(
        _usual("afmoe", num_experts=6, num_shared_experts=1, num_dense_layers=2, global_attn_every_n_layers=3, **_MOE),
        *(855762, {1024: 4}),
    ),
    "muse_glimmer": Small(_usual("muse_glimmer_text", head_dim=16, sliding_window=32), 275264, {32: 3}),
    "gpt2": Small({"model_type": "gpt2", **_OLD, "n_inner": 200, "n_ctx": 128}, 155800, tied=True),
    "gpt_bigcode": Small({"model_type": "gpt_bigcode", **_OLD, "tie_word_embeddings": False}, 177952),
    "gpt_bigcode with all heads": Small({"model_type": "gpt_bigcode", **_OLD, "multi_query": False}, 177472, tied=True),
    "opt": Small(
        {
            **{"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4},
            **{"ffn_dim": 200, "max_position_embeddings": 128, "vocab_size": 300, "word_embed_proj_dim": 64},
        },
        *(155928, {}, True),
    ),
    "falcon": Small(_FALCON, 148736, tied=True),
    "falcon, new": Small({**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}, 155264, tied=True),
    "falcon, all heads": Small(
        {**_FALCON, "multi_query": False, "parallel_attn": False, "alibi": True, "bias": True}, 169280, tied=True
    ),
    "bloom": Small(
        {"model_type": "bloom", "hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300}, 169408, tied=True
    ),
    "starcoder2": Small(_usual("starcoder2", sliding_window=32), 186528, {32: 5}, tied=True),
    "phi": Small(_usual("phi", qk_layernorm=True), 205708),
    "phi3": Small(_usual("phi3", sliding_window=64, pad_token_id=None), 254144, {64: 5}),
    "nemotron": Small(_usual("nemotron", attention_bias=True, mlp_bias=True, hidden_act="relu2"), 205728),
    "apertus": Small(_usual("apertus", hidden_act="xielu", qk_norm=True), 203114),
    "arcee": Small(_usual("arcee", mlp_bias=True, hidden_act="relu2"), 204064),
    "smollm3": Small(_usual("smollm3", attention_bias=True, pad_token_id=None), 235904, tied=True),
    "smollm3 with windows": Small(
        _usual("smollm3", use_sliding_window=True, sliding_window=32, no_rope_layer_interval=2, pad_token_id=None),
        *(234944, {32: 2}, True),
    ),
    "ministral3": Small(_usual("ministral3"), 684224),
    "ministral": Small(_usual("ministral", head_dim=16, layer_types=turns(5, 2), pad_token_id=None), 254144, {4096: 3}),
    "seed_oss": Small(_usual("seed_oss", attention_out_bias=True, mlp_bias=True, head_dim=24), 288064),
    "granite": Small(_usual("granite", attention_bias=True, mlp_bias=True, embedding_multiplier=12.0), 257024),
    "glm": Small(_usual("glm", pad_token_id=None), 689344),
    "glm4": Small(_usual("glm4", pad_token_id=None), 689984),
    "stablelm": Small(_usual("stablelm", use_qkv_bias=True, qk_layernorm=True), 255968),
    "stablelm, side by side": Small(_usual("stablelm", use_parallel_residual=True), 254208),
    "exaone": Small(_usual("exaone", num_hidden_layers="absent", num_layers=5, activation_function="silu"), 254144),
    "exaone, biases": Small(
        _usual(
            "exaone",
            **{"attention_bias": True, "mlp_bias": True, "head_dim": 24, "num_key_value_heads": "absent"},
            num_attention_heads=8,
        ),
        443584,
    ),
    "internlm3": Small(_usual("internlm3", head_dim=None), 254144),
    "internlm3, biases": Small(_usual("internlm3", qkv_bias=True, bias=True), 691584),
    "hyperclovax": Small(_usual("hyperclovax"), 254784),
    "hyperclovax, biases": Small(
        _usual("hyperclovax", use_post_norm=False, attention_bias=True, mlp_bias=True), 257024
    ),
    "cwm": Small(_usual("cwm"), 684224, {8192: 3}),
    "cwm, biases": Small(_usual("cwm", mlp_bias=True, head_dim=24, sliding_window=64), 286784, {64: 3}),
    "gpt_neox": Small(_usual("gpt_neox", num_key_value_heads="absent"), 226528),
    "gpt_neox, no biases": Small(
        _usual(
            "gpt_neox",
            **{"num_key_value_heads": "absent", "attention_bias": False, "tie_word_embeddings": True},
        ),
        *(206048, {}, True),
    ),
}
"""Each with the count of its class."""


class Published(NamedTuple):
    """Facts of a published file, and what it should be read as: the text part alone; `windows`: window and bytes for a
    token of all layers that have it, KV in bf16.
    """

    config: Config
    parameters: int
    active: int
    kv_bytes: int
    windows: tuple[tuple[int, int], ...] = ()
    longest: int = 0


def _gemma4(layers: int, **other: Any) -> Config:
    return {
        **{"model_type": "gemma4_text", "num_hidden_layers": layers, "layer_types": turns(layers, 6)},
        **{"head_dim": 256, "global_head_dim": 512, "vocab_size": 262144, "hidden_activation": "gelu_pytorch_tanh"},
        **other,
    }


MIMO_V2_FLASH: Config = {
    **{"architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "hidden_size": 4096},
    **{"num_hidden_layers": 48, "intermediate_size": 16384, "moe_intermediate_size": 2048, "n_routed_experts": 256},
    **{"num_experts_per_tok": 8, "n_shared_experts": None, "num_attention_heads": 64, "num_key_value_heads": 4},
    **{"head_dim": 192, "v_head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8},
    **{"swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window": 128, "sliding_window_size": 128},
    **{"attention_chunk_size": 128, "hybrid_layer_pattern": [0] + [0 if (i + 1) % 6 == 0 else 1 for i in range(1, 48)]},
    **{"moe_layer_freq": [0] + [1] * 47, "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False},
    **{"vocab_size": 152576, "max_position_embeddings": 262144, "attention_bias": False, "tie_word_embeddings": False},
}
STEP_3_7_FLASH: Config = {
    **{"model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45},
    **{"num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "vocab_size": 128896},
    **{"moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280},
    **{"moe_layers_enum": ",".join(map(str, range(3, 45))), "use_head_wise_attn_gate": True, "sliding_window": 512},
    **{"layer_types": [FULL if i % 4 == 0 else SLIDING for i in range(48)], "num_nextn_predict_layers": 3},
    "attention_other_setting": {
        **{"attention_type": SLIDING, "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
    },
    **{"max_position_embeddings": 262144, "max_seq_len": 262144, "use_moe_router_bias": True},
}
STEP_3_7_FLAT: Config = {
    **{"architectures": ["Step3p7FlashForCausalLM"], "model_type": "step3p7", "hidden_size": 4096},
    **{"num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128},
    **{"intermediate_size": 11264, "sliding_window": 512, "layer_types": STEP_3_7_FLASH["layer_types"][:45]},
    **{"first_k_dense_replace": 3, "num_experts": 288, "num_experts_per_tok": 8, "moe_intermediate_size": 1280},
    **{"share_expert_dim": 1280, "n_shared_experts": 1, "num_nextn_predict_layers": 3, "vocab_size": 128896},
    **{"max_position_embeddings": 65536, "scoring_func": "sigmoid", "use_moe_router_bias": True},
}
QWEN_7B: Config = {
    **{"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016},
    **{"num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "no_bias": True},
    **{"seq_length": 8192, "max_position_embeddings": 32768, "tie_word_embeddings": False, "use_dynamic_ntk": True},
}
APERTUS_8B: Config = {
    **{"model_type": "apertus", "hidden_size": 4096, "intermediate_size": 21504, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072, "max_position_embeddings": 65536},
    **{"hidden_act": "xielu", "qk_norm": True, "post_norm": False, "mlp_bias": False},
}
EXAONE_4_32B: Config = {
    **{"model_type": "exaone4", "hidden_size": 5120, "intermediate_size": 27392, "num_hidden_layers": 64},
    **{"num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 102400},
    **{"sliding_window": 4096, "sliding_window_pattern": "LLLG", "max_position_embeddings": 131072},
}
LLAMA_4_MAVERICK: Config = {
    **{"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384},
    **{"num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128},
    **{"num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "use_qk_norm": False},
    **{"attention_chunk_size": 8192, "vocab_size": 202048, "max_position_embeddings": 1048576},
}

PUBLISHED: dict[str, Published] = {
    "MiMo-V2-Flash": Published(MIMO_V2_FLASH, 308778768832, 15445924288, 23040, ((128, 199680),), 262144),
    "MiMo-7B": Published(
        {
            **{"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 36},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151680},
            **{"attention_bias": True, "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 32},
            **{"num_nextn_predict_layers": 1, "max_position_embeddings": 32768},
        },
        *(7622619136, 7622619136, 147456, (), 32768),
    ),
    "Step-3.7-Flash": Published(STEP_3_7_FLASH, 196956118272, 11987311872, 49152, ((512, 135168),), 262144),
    "Step-3.7-Flash, flat": Published(STEP_3_7_FLAT, 195844496640, 10875690240, 49152, ((512, 135168),), 65536),
    "gemma-4-26B-A4B": Published(
        _gemma4(
            30,
            **{"hidden_size": 2816, "intermediate_size": 2112, "num_attention_heads": 16, "num_key_value_heads": 8},
            **{"num_global_key_value_heads": 2, "attention_k_eq_v": True, "enable_moe_block": True},
            **{"num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704, "sliding_window": 1024},
            **{"hidden_size_per_layer_input": 0, "max_position_embeddings": 262144},
        ),
        *(25233141760, 3822530560, 20480, ((1024, 204800),), 262144),
    ),
    "gemma-4-31B": Published(
        _gemma4(
            60,
            **{"hidden_size": 5376, "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16},
            **{"num_global_key_value_heads": 4, "attention_k_eq_v": True, "num_experts": None, "sliding_window": 1024},
            **{"hidden_size_per_layer_input": 0, "max_position_embeddings": 262144},
        ),
        *(30697345280, 30697345280, 81920, ((1024, 819200),), 262144),
    ),
    "gemma-4-E4B": Published(
        _gemma4(
            42,
            **{"hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 8, "num_key_value_heads": 2},
            **{"num_kv_shared_layers": 18, "num_global_key_value_heads": None, "sliding_window": 512},
        ),
        *(7463013376, 7463013376, 4 * 4096, ((512, 20 * 2048),), 131072),
    ),
    "gemma-3n-E4B": Published(
        {"model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 35, "num_kv_shared_layers": 15},
        *(6835235568, 6835235568, 4 * 2048, ((512, 16 * 2048),), 32768),
    ),
    "gpt-oss-20b": Published(
        {
            **{"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24},
            **{"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32},
            **{"num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128, "vocab_size": 201088},
        },
        *(20914757184, 4187440704, 24576, ((128, 24576),), 131072),
    ),
    "Llama-4-Maverick": Published(LLAMA_4_MAVERICK, 400711848960, 17184691200, 49152, ((8192, 147456),), 1048576),
    "Qwen-7B": Published(QWEN_7B, 7721324544, 7721324544, 524288, (), 8192),
    "Apertus-8B": Published(APERTUS_8B, 8053338176, 8053338176, 131072, (), 65536),
    "EXAONE-4.0-32B": Published(EXAONE_4_32B, 32003216384, 32003216384, 65536, ((4096, 196608),), 131072),
}
"""Names as their makers have them. Counts: the classes of transformers 5.24 and vLLM 0.33 built without weights; of
Step-3.7-Flash in the vendor's names by hand: those of the flat file, and 32 heads more of queries, gate and output in
each of 33 layers.
"""
