"""Configurations of Llama, Mistral, Qwen, mixtures and latent attention: small ones of our own in the spelling of each
family, and facts of published files.

Counts of parameters of the small ones: the classes of transformers 5.24 built on the meta device. Published ones: what
their makers state, in billions with the digits that they give.
"""

from typing import Any, NamedTuple

Config = dict[str, Any]
ABSENT = object()


class Small(NamedTuple):
    """A configuration, the parameters that its class has, and how many of its five layers have experts."""

    config: Config
    parameters: int
    mixtures: int = 0


def _usual(model_type: str, **other: Any) -> Config:
    found = {
        **{"model_type": model_type, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 5},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 4096},
        **other,
    }
    return {key: value for key, value in found.items() if value is not ABSENT}


_MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_ROUTED = {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_LOCAL = {"num_local_experts": 6, "num_experts_per_tok": 2}
_ERNIE = {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24}
_LATENT = {
    **{"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20},
    **{"num_key_value_heads": 4, "n_group": 1, "topk_group": 1},
}
_NO_RANK = {**_LATENT, "q_lora_rank": None}
_UNSAID_RANK = {key: value for key, value in _LATENT.items() if key != "q_lora_rank"}

SMALL: dict[str, Small] = {
    "llama": Small(_usual("llama"), 254144),
    "llama, biases": Small(_usual("llama", attention_bias=True, mlp_bias=True), 257024),
    "llama, heads of their own size, tied": Small(_usual("llama", head_dim=24, tie_word_embeddings=True), 265664),
    "llama, all heads": Small(_usual("llama", num_key_value_heads=ABSENT), 274624),
    "mistral": Small(_usual("mistral"), 254144),
    "mistral, KV heads of its class": Small(
        _usual("mistral", num_attention_heads=8, num_key_value_heads=ABSENT, head_dim=24, sliding_window=None), 438464
    ),
    "qwen2": Small(_usual("qwen2"), 254784),
    "qwen2, windows, tied": Small(
        _usual("qwen2", use_sliding_window=True, max_window_layers=2, sliding_window=64, tie_word_embeddings=True),
        235584,
    ),
    "qwen3": Small(_usual("qwen3"), 685504),
    "qwen3, biases": Small(_usual("qwen3", attention_bias=True, head_dim=24), 286384),
    "qwen2_moe": Small(_usual("qwen2_moe", shared_expert_intermediate_size=48, **_MOE), 287744, 5),
    "qwen2_moe, dense layers": Small(
        _usual(
            "qwen2_moe",
            **{"shared_expert_intermediate_size": 48, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
            **{"qkv_bias": False, **_MOE},
        ),
        *(260736, 1),
    ),
    "qwen3_moe": Small(_usual("qwen3_moe", **_MOE), 240864, 5),
    "qwen3_moe, dense layers": Small(
        _usual("qwen3_moe", mlp_only_layers=[0, 3], attention_bias=True, head_dim=24, **_MOE), 278320, 3
    ),
    "qwen3_moe, every second": Small(_usual("qwen3_moe", decoder_sparse_step=2, **_MOE), 248928, 2),
    "mixtral": Small(_usual("mixtral", **_LOCAL), 1024064, 5),
    "mixtral, experts of its class": Small(_usual("mixtral", head_dim=24, sliding_window=64), 1362624, 5),
    "phimoe": Small(_usual("phimoe", **_LOCAL), 1024768, 5),
    "phimoe, biases": Small(
        _usual(
            "phimoe",
            **{"num_local_experts": 6, "attention_bias": True, "lm_head_bias": True, "num_attention_heads": 8},
            num_key_value_heads=ABSENT,
        ),
        *(1046828, 5),
    ),
    "minimax_m2": Small(_usual("minimax_m2", **_LOCAL), 1457984, 5),
    "minimax_m2, top 8 of 8": Small(_usual("minimax_m2", head_dim=24, num_local_experts=6), 1055504, 5),
    "granitemoe": Small(_usual("granitemoe", **_LOCAL), 1024064, 5),
    "granitemoe, biases, tied": Small(
        _usual("granitemoe", attention_bias=True, tie_word_embeddings=True, **_LOCAL), 1005824, 5
    ),
    "granitemoeshared": Small(_usual("granitemoeshared", shared_intermediate_size=48, **_LOCAL), 1070144, 5),
    "glm4_moe": Small(_usual("glm4_moe", **_ROUTED), 261824, 4),
    "glm4_moe, norms, biases": Small(
        _usual(
            "glm4_moe",
            **{"use_qk_norm": True, "attention_bias": True, "first_k_dense_replace": 2, "n_shared_experts": 2},
            **{"head_dim": 24, **_ROUTED},
        ),
        *(305648, 3),
    ),
    "dots1": Small(_usual("dots1", n_shared_experts=2, first_k_dense_replace=1, **_ROUTED), 280416, 4),
    "dots1, windows": Small(
        _usual("dots1", max_window_layers=3, sliding_window=64, n_shared_experts=1, **_ROUTED), 263904, 5
    ),
    "ernie4_5": Small(_usual("ernie4_5"), 665024),
    "ernie4_5, biases, untied": Small(
        _usual("ernie4_5", use_bias=True, tie_word_embeddings=False, head_dim=24), 288064
    ),
    "ernie4_5_moe": Small(_usual("ernie4_5_moe", **_ERNIE), 261080, 4),
    "ernie4_5_moe, biases, untied": Small(
        _usual(
            "ernie4_5_moe",
            **{"use_bias": True, "moe_layer_start_index": 1, "moe_layer_end_index": 2, "moe_layer_interval": 2},
            **{"moe_num_shared_experts": 0, "tie_word_embeddings": False, **_ERNIE},
        ),
        *(254258, 1),
    ),
    "hunyuan_v1_dense": Small(_usual("hunyuan_v1_dense", head_dim=16), 254304),
    "hunyuan_v1_dense, biases, tied": Small(
        _usual("hunyuan_v1_dense", attention_bias=True, head_dim=24, tie_word_embeddings=True), 267184
    ),
    "hunyuan_v1_moe": Small(
        _usual("hunyuan_v1_moe", head_dim=16, num_experts=6, moe_topk=2, num_shared_expert=1), 1177824, 5
    ),
    "hunyuan_v1_moe, lists": Small(
        _usual(
            "hunyuan_v1_moe",
            **{"head_dim": 16, "num_experts": 6, "moe_topk": [2] * 5, "num_shared_expert": [1] * 5},
            moe_intermediate_size=[160] * 5,
        ),
        *(1177824, 5),
    ),
    "deepseek_v2": Small(
        _usual("deepseek_v2", n_shared_experts=2, first_k_dense_replace=1, **_ROUTED, **_LATENT), 299736, 4
    ),
    "deepseek_v2, queries of the hidden size": Small(
        _usual("deepseek_v2", n_shared_experts=2, first_k_dense_replace=1, **_ROUTED, **_NO_RANK), 311136, 4
    ),
    "deepseek_v2, rank of its class": Small(_usual("deepseek_v2", **_ROUTED, **_UNSAID_RANK), 1523424, 5),
    "deepseek_v3": Small(_usual("deepseek_v3", **_ROUTED, **_LATENT), 277464, 2),
    "deepseek_v3, biases": Small(
        _usual(
            "deepseek_v3",
            **{"attention_bias": True, "first_k_dense_replace": 1, "n_shared_experts": 2, **_ROUTED, **_LATENT},
        ),
        *(300376, 4),
    ),
    "deepseek_v3, biases, queries of the hidden size": Small(
        _usual("deepseek_v3", attention_bias=True, **_ROUTED, **_NO_RANK), 289384, 2
    ),
    "glm4_moe_lite": Small(_usual("glm4_moe_lite", **_ROUTED, **_LATENT), 281304, 4),
    "glm4_moe_lite, biases, words": Small(
        _usual(
            "glm4_moe_lite",
            **{"attention_bias": True, "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 3, **_ROUTED, **_LATENT},
        ),
        *(280024, 3),
    ),
    "mistral4": Small(_usual("mistral4", **_ROUTED, **_LATENT), 283224, 5),
    "mistral4, dense layers": Small(
        _usual("mistral4", first_k_dense_replace=2, attention_bias=True, **_ROUTED, **_LATENT), 280024, 3
    ),
    "olmoe": Small(_usual("olmoe", num_experts=6, num_experts_per_tok=2), 1024544, 5),
    "olmoe, biases, tied": Small(
        _usual("olmoe", num_experts=6, num_experts_per_tok=2, attention_bias=True, tie_word_embeddings=True), 1006304, 5
    ),
    "solar_open": Small(_usual("solar_open", intermediate_size=ABSENT, **_ROUTED), 693824, 5),
    "solar_open, biases": Small(
        _usual(
            "solar_open",
            **{"intermediate_size": ABSENT, "attention_bias": True, "head_dim": 24, "n_shared_experts": 2, **_ROUTED},
        ),
        *(318464, 5),
    ),
    "hy_v3": Small(_usual("hy_v3", **_MOE), 693184, 4),
    "hy_v3, biases, words": Small(
        _usual(
            "hy_v3",
            **{"attention_bias": True, "head_dim": 24, "num_shared_experts": 2},
            **{"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 3, **_MOE},
        ),
        *(305968, 3),
    ),
    "youtu": Small(
        _usual("youtu", **{key: value for key, value in _LATENT.items() if not key.endswith("group")}), 254424
    ),
}


class Published(NamedTuple):
    """Facts of a published file, and what its makers state: parameters and active ones, in billions."""

    config: Config
    parameters: float
    active: float


PUBLISHED: dict[str, Published] = {
    "Grok-2": Published(  # sglang, docs on Grok-2: 270B, 115B active
        {
            **{"architectures": ["Grok1ForCausalLM"], "model_type": "git", "residual_moe": True, "head_dim": 128},
            **{"hidden_size": 8192, "intermediate_size": 32768, "moe_intermediate_size": 16384, "vocab_size": 131072},
            **{"num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "num_local_experts": 8},
            **{"num_experts_per_tok": 2, "max_position_embeddings": 131072, "sliding_window_size": -1},
        },
        *(270, 115),
    ),
    "Ling-lite": Published(  # arXiv 2503.05139: 16.8B, 2.75B active
        {
            **{"architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe", "hidden_size": 2048},
            **{"intermediate_size": 5632, "num_hidden_layers": 28, "num_attention_heads": 16, "head_dim": 128},
            **{"num_key_value_heads": 4, "vocab_size": 126464, "max_position_embeddings": 16384, "num_experts": 64},
            **{"num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408, "norm_head": True},
        },
        *(16.8, 2.75),
    ),
    "DeepSeekMoE": Published(  # arXiv 2401.06066: 16.4B, 2.8B active
        {
            **{"architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "hidden_size": 2048},
            **{"intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 28},
            **{"num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64, "n_shared_experts": 2},
            **{"num_experts_per_tok": 6, "first_k_dense_replace": 1, "vocab_size": 102400},
            **{"max_position_embeddings": 4096},
        },
        *(16.4, 2.8),
    ),
    "Hunyuan-Large": Published(  # arXiv 2411.02265: 389B, 52B active; every second layer reads keys of the one before
        {
            **{"architectures": ["HunYuanForCausalLM"], "model_type": "hunyuan", "hidden_size": 6400},
            **{"intermediate_size": 18304, "num_hidden_layers": 64, "num_attention_heads": 80, "vocab_size": 128512},
            **{"num_key_value_heads": 8, "num_experts": 16, "moe_topk": 1, "num_shared_expert": 1, "use_cla": True},
            **{"cla_share_factor": 2, "use_mixed_mlp_moe": True, "use_qk_norm": True, "tie_word_embeddings": True},
            **{"max_position_embeddings": 131072, "attention_head_dim": 80},
        },
        *(389, 52),
    ),
}
