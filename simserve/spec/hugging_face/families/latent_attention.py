"""DeepSeek-V2 and V3 and those that have their layers: latent attention, first layers dense, the others with experts.

Keys and defaults: transformers 5.24, configuration and modeling files of deepseek_v2, deepseek_v3, glm4_moe_lite,
mistral4, youtu and longcat_flash; kimi_k2 has the class of DeepSeek-V3. Layers that propose drafts (MTP) are not in the
model.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import dense_layers, latent, routed
from simserve.spec.hugging_face.parts import check_top_k, decoder, dense, gated_activation, mixed_layers, num_layers
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp, Mixture

_V3 = {
    **{"num_attention_heads": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048},
    **{"n_shared_experts": 1},
}
_V2 = {**_V3, "num_attention_heads": 32, "n_routed_experts": 64, "moe_intermediate_size": 1407, "n_shared_experts": 2}
_LITE = {
    **{"num_attention_heads": 20, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64},
    **{"v_head_dim": 256, "n_routed_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 1536},
    **{"n_shared_experts": 1},
}
_MISTRAL = {
    **{"num_attention_heads": 32, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128, "n_routed_experts": 128, "num_experts_per_tok": 4, "moe_intermediate_size": 2048},
    **{"n_shared_experts": 1},
}
_YOUTU = {
    **{"num_attention_heads": 16, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128},
}
_LONGCAT = {
    **{"num_attention_heads": 64, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128},
}


def _decoder(keys: Keys, defaults: dict[str, int], *, q_lora_rank: int, first_dense: int, length: int) -> Decoder:
    layers = num_layers(keys)
    keys.expect(
        "head_dim", keys.whole("qk_rope_head_dim", default=64), None, why="is an alias of qk_rope_head_dim here"
    )
    attention = latent(keys, defaults, q_lora_rank=q_lora_rank)
    is_dense = dense_layers(keys, layers, first_dense)
    mixture = routed(keys, defaults, "num_experts", "num_local_experts")
    rows = mixed_layers([attention] * layers, lambda layer: is_dense[layer], dense(keys), mixture)
    found = decoder(keys, rows, tied=False, max_positions=length)
    return found._replace(drafting_layers=keys.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, null=0))


def _deepseek_v2(keys: Keys) -> Decoder:
    return _decoder(keys, _V2, q_lora_rank=1536, first_dense=0, length=2048)


def _deepseek_v3(keys: Keys) -> Decoder:
    return _decoder(keys, _V3, q_lora_rank=1536, first_dense=3, length=4096)


def _glm4_moe_lite(keys: Keys) -> Decoder:
    return _decoder(keys, _LITE, q_lora_rank=768, first_dense=1, length=202752)


def _mistral4(keys: Keys) -> Decoder:
    """Here `head_dim` stands for a whole query."""
    layers, attention = num_layers(keys), latent(keys, _MISTRAL, q_lora_rank=1024)
    keys.expect("head_dim", attention.qk_head_dim, why="is not qk_nope_head_dim + qk_rope_head_dim")
    first = keys.whole("first_k_dense_replace", default=0)
    keys.know("intermediate_size")  # of dense layers, of which published models have none
    mixture = routed(keys, _MISTRAL, "num_local_experts")
    rows = mixed_layers([attention] * layers, lambda layer: layer < first, dense(keys) if first else None, mixture)
    return decoder(keys, rows, tied=False, max_positions=1048576)


def _youtu(keys: Keys) -> Decoder:
    """Dense layers alone; `head_dim` stands for that of positions."""
    layers, attention = num_layers(keys), latent(keys, _YOUTU, q_lora_rank=1536)
    keys.expect("head_dim", attention.qk_rope_head_dim, why="is not qk_rope_head_dim, which it stands for here")
    layer = LayerSpec(attention=attention, mlp=dense(keys))
    return decoder(keys, [layer] * layers, tied=True, max_positions=131072)


def _longcat_flash(keys: Keys) -> Decoder:
    """Every layer of the file is two here: attention and a dense MLP each, and the experts beside the first one (its
    shortcut, LongCat-Flash report, arXiv 2509.01322).
    """
    layers = keys.count("num_layers", default=28)
    gated_activation(keys)
    attention = latent(keys, _LONGCAT, q_lora_rank=1536)
    keys.expect("head_dim", attention.qk_rope_head_dim, 64, why="is not qk_rope_head_dim, which it stands for here")
    width = keys.count("ffn_hidden_size", "intermediate_size", default=12288)
    keys.expect("zero_expert_type", "identity", why="is not known: only experts that pass their input on are")
    mixture = Mixture(
        num_experts=keys.count("n_routed_experts", "num_local_experts", default=512),
        experts_per_token=keys.count("moe_topk", "num_experts_per_tok", default=12),
        width=keys.count("expert_ffn_hidden_size", "moe_intermediate_size", default=2048),
        residual_width=width,
        zero_experts=keys.whole("zero_expert_num", default=256),
    )
    first = LayerSpec(attention=attention, mlp=check_top_k(keys, mixture, "moe_topk"))
    rows = [first, LayerSpec(attention=attention, mlp=DenseMlp(width=width))] * layers
    return decoder(keys, rows, tied=False, max_positions=131072)


FAMILIES = (
    Family("deepseek_v2", ("deepseek_v2",), ("DeepseekV2ForCausalLM",), _deepseek_v2),
    Family("deepseek_v3", ("deepseek_v3", "kimi_k2"), ("DeepseekV3ForCausalLM",), _deepseek_v3, ("tf_legacy_loss",)),
    Family("glm4_moe_lite", ("glm4_moe_lite",), ("Glm4MoeLiteForCausalLM",), _glm4_moe_lite),
    Family("youtu", ("youtu",), ("YoutuForCausalLM",), _youtu, ("embedding_initializer_range",)),
    Family("mistral4", ("mistral4",), ("Mistral4ForCausalLM",), _mistral4),
    Family(
        "longcat_flash",
        ("longcat_flash",),
        ("LongcatFlashForCausalLM",),
        _longcat_flash,
        ("mla_scale_q_lora", "mla_scale_kv_lora", "router_bias", "attention_method", "emb_split_num"),
    ),
)
