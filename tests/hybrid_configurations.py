"""Configurations of models with linear, state-space, convolution and sparse layers: facts of published files in our own
spelling, and what independent counts make of them.

Counts of parameters: the classes of transformers 5.24 built on the meta device, where they are there (V4, Kimi K3 and
MiniMax-M3's index cache: those of vLLM 0.33); states: shapes and formats of vLLM 0.33, mamba_utils.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Config = dict[str, Any]


class Counted(NamedTuple):
    """What a configuration should be read as. `windows`: window and bytes for a token, KV in bf16."""

    parameters: int
    active: int
    kv_bytes: float
    state_bytes: int = 0
    index_bytes: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()
    longest: int = 0
    kinds: Mapping[str, int] | None = None
    towers: int = 0


def _turns(layers: int, every: int, other: str = "linear_attention") -> list[str]:
    return ["full_attention" if (layer + 1) % every == 0 else other for layer in range(layers)]


def _at(layers: int, places: tuple[int, ...], there: str, else_: str) -> list[str]:
    return [there if layer in places else else_ for layer in range(layers)]


_QWEN_VISION = {
    **{"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "in_channels": 3},
    **{"num_position_embeddings": 2304, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_heads": 16},
}
_DELTA = {
    **{"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    **{"linear_num_key_heads": 16, "head_dim": 256, "mamba_ssm_dtype": "float32", "attn_output_gate": True},
    **{"max_position_embeddings": 262144, "vocab_size": 248320, "mtp_num_hidden_layers": 1, "dtype": "bfloat16"},
}
_INDEX = {"index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048}
_GLM = {
    **{"model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288, "moe_intermediate_size": 2048},
    **{"num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 256},
    **{"n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512},
    **{"q_lora_rank": 2048, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "head_dim": 192},
    **{"vocab_size": 154880, "max_position_embeddings": 1048576, "num_nextn_predict_layers": 1, **_INDEX},
}
_V4 = {
    **{"architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 43, "head_dim": 512},
    **{"num_attention_heads": 64, "num_key_value_heads": 1, "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8},
    **{"qk_rope_head_dim": 64, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1},
    **{"num_experts_per_tok": 6, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512, "hc_mult": 4},
    **{"num_hash_layers": 3, "sliding_window": 128, "vocab_size": 129280, "max_position_embeddings": 1048576},
    **{"compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0], "num_nextn_predict_layers": 1, "hc_eps": 1e-6},
}
_NEMOTRON = {
    **{"model_type": "nemotron_h", "num_key_value_heads": 2, "num_attention_heads": 32, "head_dim": 128},
    **{"mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2},
    **{"vocab_size": 131072, "max_position_embeddings": 262144, "mlp_hidden_act": "relu2", "n_shared_experts": 1},
    **{"use_conv_bias": True, "use_bias": False, "mamba_ssm_cache_dtype": "float32", "chunk_size": 128},
}
_NANO = {
    **{**_NEMOTRON, "hidden_size": 2688, "mamba_num_heads": 64, "n_routed_experts": 128, "num_experts_per_tok": 6},
    **{"moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "intermediate_size": 1856},
}
_PATTERN = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
_M3_FIRST = [0] * 3 + [1] * 57
_K3_FULL = [*range(4, 93, 4), 93]
_LINEAR_FULL = [4, 8, 12, 16, 20, 24, 27]


def _delta_places(full: list[int], layers: int) -> dict[str, list[int]]:
    return {"full_attn_layers": full, "kda_layers": [place for place in range(1, layers + 1) if place not in full]}


_WIDTHS = {
    **{"a": 5.25, "b": 2.625, "c": 1.3125, "d": 1.0, "e": 0.5, "f": 2.625, "g": 3.28125, "h": 5.25},
}
"""Widths of MLPs of Llama-Nemotron-Super, by a letter; a and b have attention beside them."""
_SUPER_49B = "baaaaaffaaagaaaaaaaaaaaaaaaaaaaaaaaaaaaaaacffchcfcccacddcdddcceeddeedeeaaaaaaaaa"


def _nas_block(letter: str) -> Config:
    attends = letter in "ab"
    return {
        "attention": {"no_op": not attends, "n_heads_in_group": 8 if attends else None, "replace_with_linear": False},
        "ffn": {"no_op": False, "ffn_mult": _WIDTHS[letter], "replace_with_linear": False},
    }


MODELS: dict[str, tuple[Config, Counted]] = {
    "Qwen3-Next-80B-A3B": (
        {
            **{key: value for key, value in _DELTA.items() if key not in {"mamba_ssm_dtype", "mtp_num_hidden_layers"}},
            **{"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16},
            **{"num_key_value_heads": 2, "linear_num_value_heads": 32, "num_experts": 512, "num_experts_per_tok": 10},
            **{"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "full_attention_interval": 4},
            **{"vocab_size": 151936, "intermediate_size": 5120, "decoder_sparse_step": 1, "mlp_only_layers": []},
        },
        Counted(79674391296, 3874929408, 24576, 39518208, longest=262144, kinds={"gated_delta_net": 36, "full": 12}),
    ),
    "Qwen3.5-35B-A3B": (
        {
            **{"model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"]},
            **{"tie_word_embeddings": False, "vision_config": {**_QWEN_VISION, "out_hidden_size": 2048}},
            "text_config": {
                **{**_DELTA, "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40},
                **{"num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_value_heads": 32},
                **{"num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512},
                **{"shared_expert_intermediate_size": 512, "layer_types": _turns(40, 4), "full_attention_interval": 4},
            },
        },
        Counted(34660610688, 3454988928, 20480, 64389120, longest=262144, towers=446571248),
    ),
    "Qwen3.5-27B": (
        {
            **{"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]},
            **{"tie_word_embeddings": False, "vision_config": {**_QWEN_VISION, "out_hidden_size": 5120}},
            "text_config": {
                **{**_DELTA, "model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64},
                **{"num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_value_heads": 48},
                **{"intermediate_size": 17408, "layer_types": _turns(64, 4), "mlp_only_layers": []},
            },
        },
        Counted(26895998464, 26895998464, 65536, 153944064, longest=262144, towers=460730096),
    ),
    "DeepSeek-V3.2": (
        {
            **{"model_type": "deepseek_v32", "hidden_size": 7168, "intermediate_size": 18432, "q_lora_rank": 1536},
            **{"moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512},
            **{"num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8},
            **{"first_k_dense_replace": 3, "moe_layer_freq": 1, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
            **{"v_head_dim": 128, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "vocab_size": 129280},
            **{"max_position_embeddings": 163840, "num_nextn_predict_layers": 1, "hidden_act": "silu"},
        },
        Counted(671877929216, 38403807488, 70272, 0, 8052, longest=163840, kinds={"sparse_latent": 61}),
    ),
    "GLM-5": (
        {**_GLM, "max_position_embeddings": 202752, "head_dim": 64},
        Counted(743911199232, 41784709632, 89856, 0, 10296, longest=202752),
    ),
    "GLM-5.2": (
        {
            **{**_GLM, "index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": None},
            **{"indexer_types": ["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3},
            **{"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75},
        },
        Counted(743377000704, 41250511104, 89856, 0, 2772, longest=1048576),
    ),
    "DeepSeek-V4-Flash": (
        {**_V4, "model_type": "deepseek_v4", "rope_theta": 10000, "compress_rope_theta": 160000},
        Counted(
            *(284332230231, 13799622231, 3206.25, 0, 708.75),
            windows=((128, 25155), (8, 217728), (128, 82080)),
            longest=1048576,
            kinds={"compressed": 43},
        ),
    ),
    "DeepSeek-V4-Flash by sgl-project": (
        {**_V4, "model_type": "deepseek_ref"},
        Counted(
            *(284332230231, 13799622231, 3206.25, 0, 708.75),
            windows=((128, 25155), (8, 217728), (128, 82080)),
            longest=1048576,
        ),
    ),
    "Kimi-K3": (
        {
            **{"model_type": "kimi_k3", "architectures": ["KimiK3ForConditionalGeneration"]},
            "vision_config": {
                **{"vt_hidden_size": 1024, "vt_intermediate_size": 4096, "vt_num_hidden_layers": 27, "patch_size": 14},
                **{"qkv_hidden_size": 1536, "attn_bias": False, "linear_bias": False, "patch_embed_proj_bias": False},
                **{"norm_type": "rmsnorm", "mm_projector_type": "patchmergerv2", "merge_kernel_size": [2, 2]},
                **{"init_pos_emb_height": 64, "init_pos_emb_width": 64, "vt_num_attention_heads": 12},
            },
            "text_config": {
                **{"model_type": "kimi_linear", "hidden_size": 7168, "intermediate_size": 33792, "kv_lora_rank": 512},
                **{"moe_intermediate_size": 3072, "num_hidden_layers": 93, "num_attention_heads": 96},
                **{"num_key_value_heads": 96, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
                **{"v_head_dim": 128, "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2},
                **{"first_k_dense_replace": 1, "moe_layer_freq": 1, "routed_expert_hidden_size": 3584},
                **{"latent_moe_use_norm": True, "attn_res_block_size": 12, "mla_use_output_gate": True},
                **{"mla_use_nope": True, "vocab_size": 163840, "max_position_embeddings": 1048576},
                **{"hidden_act": "situ", "num_nextn_predict_layers": 0},
                "linear_attn_config": {
                    **{"num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4, "use_full_rank_gate": True},
                    **_delta_places(_K3_FULL, 93),
                },
            },
        },
        Counted(
            *(2779484476000, 105364017760, 27648, 449372160),
            longest=1048576,
            towers=447358976,
            kinds={"kimi_delta": 69, "latent": 24},
        ),
    ),
    "Kimi-Linear-48B-A3B": (
        {
            **{"model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216, "kv_lora_rank": 512},
            **{"moe_intermediate_size": 1024, "num_hidden_layers": 27, "num_attention_heads": 32, "q_lora_rank": None},
            **{"num_key_value_heads": 32, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
            **{"num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1},
            **{"moe_layer_freq": 1, "mla_use_nope": True, "vocab_size": 163840, "model_max_length": 1048576},
            "linear_attn_config": {
                **{"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4},
                **_delta_places(_LINEAR_FULL, 27),
            },
        },
        # The router's 26 x 256 biases are counted, as vLLM's class does and that of transformers does not.
        Counted(49122675072 + 6656, 3484459904, 8064, 43417600, longest=1048576, kinds={"kimi_delta": 20, "latent": 7}),
    ),
    "MiniMax-M3": (
        {
            **{"model_type": "minimax_m3", "hidden_size": 6144, "intermediate_size": 3072, "num_hidden_layers": 60},
            **{"num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_local_experts": 128},
            **{"num_experts_per_tok": 4, "n_shared_experts": 1, "shared_intermediate_size": 3072},
            **{"dense_intermediate_size": 12288, "moe_layer_freq": _M3_FIRST, "hidden_act": "swigluoai"},
            **{"vocab_size": 200064, "max_position_embeddings": 1048576, "qk_norm_type": "per_head"},
            "sparse_attention_config": {
                **{"sparse_attention_freq": _M3_FIRST, "sparse_index_dim": 128, "sparse_num_index_heads": 4},
                **{"sparse_topk_blocks": 16, "sparse_block_size": 128, "use_sparse_attention": True},
            },
        },
        Counted(426174565632, 25962466560, 122880, 0, 14592, longest=1048576, kinds={"full": 3, "sparse": 57}),
    ),
    "MiniMax-Text-01": (
        {
            **{"model_type": "minimax", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80},
            **{"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32},
            **{"num_experts_per_tok": 2, "vocab_size": 200064, "max_position_embeddings": 10240000},
            **{"layer_types": _turns(80, 8)},
        },
        Counted(456089655296, 48403306496, 40960, 146800640, longest=10240000, kinds={"lightning": 70, "full": 10}),
    ),
    "MiniMax-M1-80k": (
        {
            **{"model_type": "minimax_m1", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80},
            **{"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32},
            **{"num_experts_per_tok": 2, "vocab_size": 200064, "max_position_embeddings": 10240000},
            **{"attn_type_list": ([0] * 7 + [1]) * 10, "shared_intermediate_size": 0, "postnorm": True},
        },
        Counted(456089655296, 48403306496, 40960, 146800640, longest=10240000),
    ),
    "Nemotron-3-Nano-30B": (
        {**_NANO, "num_hidden_layers": 52, "hybrid_override_pattern": _PATTERN},
        Counted(31577937344, 3580073408, 6144, 49082368, longest=262144, kinds={"mamba2": 23, "full": 6}),
    ),
    "Nemotron-3-Super-120B-A12B": (
        {
            **{**_NEMOTRON, "hidden_size": 4096, "mamba_num_heads": 128, "n_routed_experts": 512},
            **{"num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376},
            **{"moe_latent_size": 1024, "num_hidden_layers": 88, "num_nextn_predict_layers": 1},
            "hybrid_override_pattern": (
                "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
            ),
        },
        Counted(120668687360, 12770216960, 8192, 170229760, longest=262144),
    ),
    "Nemotron-H-56B-Base-8K": (
        {
            **{key: value for key, value in _NEMOTRON.items() if key not in {"head_dim", "n_shared_experts"}},
            **{"attention_head_dim": 128, "hidden_size": 8192, "intermediate_size": 32768, "mamba_num_heads": 256},
            **{"ssm_state_size": 256, "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 118},
            **{"hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-"},
            **{"max_position_embeddings": 8192},
        },
        Counted(56324350464, 56324350464, 40960, 912605184, longest=8192),
    ),
    "Llama-3.3-Nemotron-Super-49B": (
        {
            **{"model_type": "nemotron-nas", "architectures": ["DeciLMForCausalLM"], "hidden_size": 8192},
            **{"num_attention_heads": 64, "num_key_value_heads": None, "intermediate_size": None, "hidden_act": "silu"},
            **{"num_hidden_layers": 80, "vocab_size": 128256, "max_position_embeddings": 131072},
            **{"block_configs": [_nas_block(letter) for letter in _SUPER_49B]},
        },
        Counted(49867145216, 49867145216, 200704, longest=131072, kinds={"full": 49}),
    ),
    "Granite-4.0-H-Small": (
        {
            **{"model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768},
            **{"shared_intermediate_size": 1536, "num_hidden_layers": 40, "num_attention_heads": 32},
            **{"num_key_value_heads": 8, "num_local_experts": 72, "num_experts_per_tok": 10, "mamba_n_heads": 128},
            **{"mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2},
            **{"vocab_size": 100352, "max_position_embeddings": 131072, "tie_word_embeddings": True},
            **{"layer_types": _at(40, (5, 15, 25, 35), "attention", "mamba")},
        },
        Counted(32207337984, 8803121664, 16384, 77322240, longest=131072, kinds={"mamba2": 36, "full": 4}),
    ),
    "Granite-4.0-Micro": (
        {
            **{"model_type": "granitemoehybrid", "hidden_size": 2560, "intermediate_size": 8192},
            **{"shared_intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 40},
            **{"num_key_value_heads": 8, "num_local_experts": 0, "num_experts_per_tok": 0, "mamba_n_heads": 128},
            **{"vocab_size": 100352, "max_position_embeddings": 131072, "tie_word_embeddings": True},
            **{"layer_types": ["attention"] * 40},
        },
        Counted(3402836480, 3402836480, 81920, longest=131072, kinds={"full": 40}),
    ),
    "Bamba-9B": (
        {
            **{"model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27]},
            **{"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_expand": 2},
            **{"vocab_size": 128256, "max_position_embeddings": 262144, "attn_rotary_emb": 64},
        },
        Counted(9780235392, 9780235392, 12288, 62287360, longest=262144, kinds={"mamba2": 29, "full": 3}),
    ),
    "Falcon-H1-0.5B": (
        {
            **{"model_type": "falcon_h1", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 36},
            **{"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "mamba_d_ssm": 1536},
            **{"mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1},
            **{"vocab_size": 32784, "max_position_embeddings": 16384, "mamba_rms_norm": False},
        },
        Counted(521411104, 521411104, 18432, 14542848, longest=16384, kinds={"parallel": 36}),
    ),
    "Jamba-v0.1": (
        {
            **{"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2},
            **{"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1},
            **{"mamba_d_state": 16, "mamba_dt_rank": 256, "vocab_size": 65536, "max_position_embeddings": 262144},
        },
        Counted(51570323328, 12110311296, 16384, 8716288, longest=262144, kinds={"mamba1": 28, "full": 4}),
    ),
    "Mamba-2.8B": (
        {
            **{"model_type": "mamba", "hidden_size": 2560, "intermediate_size": 5120, "num_hidden_layers": 64},
            **{"state_size": 16, "conv_kernel": 4, "time_step_rank": 160, "vocab_size": 50280, "expand": 2},
        },
        Counted(2768345600, 2768345600, 0, 12451840, longest=2048, kinds={"mamba1": 64}),
    ),
    "Falcon-Mamba-7B": (
        {
            **{"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 16},
            **{"conv_kernel": 4, "time_step_rank": 256, "vocab_size": 65024, "tie_word_embeddings": False},
        },
        Counted(7272665088, 7272665088, 0, 19922944, longest=2048),
    ),
    "Mamba-Codestral-7B": (
        {
            **{"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 128},
            **{"num_heads": 128, "head_dim": 64, "n_groups": 8, "vocab_size": 32768, "expand": 2},
        },
        Counted(7285403648, 7285403648, 0, 138149888, longest=2048),
    ),
    "LFM2-1.2B": (
        {
            **{"model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288, "block_auto_adjust_ff_dim": True},
            **{"block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "num_hidden_layers": 16},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "full_attn_idxs": [2, 5, 8, 10, 12, 14]},
            **{"conv_L_cache": 3, "conv_dim": 2048, "vocab_size": 65536, "tie_embedding": True},
        },
        Counted(1170340608, 1170340608, 12288, 81920, longest=128000, kinds={"short_conv": 10, "full": 6}),
    ),
    "LFM2-8B-A1B": (
        {
            **{"model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792},
            **{"num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 8, "num_dense_layers": 2},
            **{"num_experts": 32, "num_experts_per_tok": 4, "vocab_size": 65536, "max_position_embeddings": 128000},
            **{"layer_types": _at(24, (2, 6, 10, 14, 18, 21), "full_attention", "conv")},
        },
        Counted(8339929856, 1557740288, 12288, 147456, longest=128000),
    ),
    "RecurrentGemma-2B": (
        {
            **{"model_type": "recurrent_gemma", "hidden_size": 2560, "intermediate_size": 15360, "lru_width": 2560},
            **{"num_hidden_layers": 26, "num_attention_heads": 10, "num_key_value_heads": 1, "head_dim": 256},
            **{"attention_window_size": 2048, "conv1d_width": 4, "vocab_size": 256000},
            **{"block_types": ["recurrent", "recurrent", "attention"], "hidden_activation": "gelu_pytorch_tanh"},
        },
        Counted(2682862080, 2682862080, 0, 460800, windows=((2048, 8192),), longest=2048),
    ),
    "Zamba2-7B": (
        {
            **{"model_type": "zamba2", "hidden_size": 3584, "num_hidden_layers": 81, "mamba_d_state": 64},
            **{"layers_block_type": _at(81, (6, 11, *range(17, 78, 6)), "hybrid", "mamba"), "mamba_ngroups": 2},
            **{"n_mamba_heads": 112, "intermediate_size": 14336, "num_attention_heads": 32, "num_mem_blocks": 2},
            **{"num_key_value_heads": 32, "adapter_rank": 128, "vocab_size": 32000, "use_mem_rope": True},
            **{"max_position_embeddings": 4096},
        },
        Counted(
            *(7356749648, 7356749648, 372736, 77925888), longest=4096, kinds={"mamba2": 68, "shared_transformer": 13}
        ),
    ),
    "Zamba2-1.2B": (
        {
            **{"model_type": "zamba2", "hidden_size": 2048, "num_hidden_layers": 38, "mamba_d_state": 128},
            **{"layers_block_type": _at(38, (*range(5, 36, 6),), "hybrid", "mamba"), "mamba_ngroups": 1},
            **{"n_mamba_heads": 64, "intermediate_size": 8192, "num_attention_heads": 32, "num_mem_blocks": 1},
            **{"num_key_value_heads": 32, "adapter_rank": 128, "vocab_size": 32000, "use_mem_rope": True},
            **{"use_shared_attention_adapter": True, "max_position_embeddings": 4096},
        },
        Counted(1215064704, 1215064704, 98304, 40838144, longest=4096),
    ),
    "a small Ling 3": (
        {
            **{"model_type": "bailing_hybrid", "hidden_size": 64, "intermediate_size": 96, "head_dim": 8},
            **{"moe_intermediate_size": 32, "num_hidden_layers": 7, "num_attention_heads": 4, "kv_lora_rank": 16},
            **{"q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8},
            **{"num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 100, "layer_group_size": 3},
            **{"first_k_dense_replace": 1},
        },
        Counted(297580, 223852, 80, 8000, longest=262144, kinds={"kimi_delta": 5, "latent": 2}),
    ),
}
"""Name -> configuration and what it should be read as. Formats of weights are left out."""
