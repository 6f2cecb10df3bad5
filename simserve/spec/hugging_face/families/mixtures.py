"""Experts beside attention to all tokens: Mixtral and those after it.

Keys and defaults: transformers 5.24, configuration and modeling files of each family; Grok-2: the configuration and
modeling files beside its checkpoint.
"""

from collections.abc import Sequence

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import dense_layers, routed
from simserve.spec.hugging_face.parts import (
    check_top_k,
    decoder,
    dense,
    gated_activation,
    grouped,
    mixed_layers,
    num_layers,
    window_pattern,
    with_windows,
)
from simserve.spec.hugging_face.positions import long_rope_warnings
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp, Mixture

_BLOCK_SPARSE = Modules(
    mlp="block_sparse_moe",
    renamed={
        "experts.0.gate_proj": "experts.0.w1",
        "experts.0.up_proj": "experts.0.w3",
        "experts.0.down_proj": "experts.0.w2",
    },
)


def _local(keys: Keys, experts: int, top_k: int) -> Mixture:
    """Experts of the width `intermediate_size`, as Mixtral spells them; with the class's defaults."""
    gated_activation(keys)
    mixture = Mixture(
        num_experts=keys.count("num_local_experts", "num_experts", default=experts),
        experts_per_token=keys.count("num_experts_per_tok", default=top_k),
        width=keys.count("intermediate_size"),
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def _mixtral(keys: Keys) -> Decoder:
    layers, window = num_layers(keys), keys.whole("sliding_window", default=0, null=0)
    mixture = _local(keys, 8, 2)
    rows = with_windows(grouped(keys, kv_heads=8), window, [True] * layers)
    return decoder(
        keys,
        [LayerSpec(attention=each, mlp=mixture) for each in rows],
        tied=False,
        max_positions=4096 * 32,
        modules=_BLOCK_SPARSE,
    )


def _phimoe(keys: Keys) -> Decoder:
    """Norms have biases, and so has the head."""
    layers, window = num_layers(keys), keys.whole("sliding_window", default=0, null=0)
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, kv_heads=8, qkv_bias=bias, output_bias=bias)
    length = keys.count("max_position_embeddings", default=4096 * 32)
    rows = with_windows(attention, window if window < length else None, [True] * layers)
    mixture = _local(keys, 16, 2)
    found = decoder(
        keys,
        [LayerSpec(attention=each, mlp=mixture, norms=4) for each in rows],
        tied=False,
        max_positions=length,
        modules=_BLOCK_SPARSE,
    )
    biases = {"bias of the last norm": keys.count("hidden_size")}
    if keys.flag("lm_head_bias", default=False):
        biases["bias of lm_head"] = keys.count("vocab_size")
    return found._replace(extra_parameters=biases, warnings=long_rope_warnings(keys))


def _minimax_m2(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    _all_layers_attend(keys, layers)
    keys.expect("qk_norm_type", "per_layer", why="is not known: norms are taken over all heads of a layer")
    keys.expect("shared_intermediate_size", 0, why="is not known: the class has no shared expert")
    keys.expect("sliding_window", 0, why="is not known: the class has no windows")
    norm = "all" if keys.flag("use_qk_norm", default=True) else "none"
    attention = grouped(keys, kv_heads=8, head_dim=128, qk_norm=norm)
    keys.know("use_routing_bias")  # of the router's choice; the class does not count it as a parameter
    mixture = _local(keys, 8, 2)
    rows = [LayerSpec(attention=attention, mlp=mixture)] * layers
    found = decoder(keys, rows, tied=False, max_positions=4096 * 32, modules=_BLOCK_SPARSE)
    drafts = keys.whole("num_mtp_modules", default=0) * keys.whole("mtp_transformer_layers", default=1)
    return found._replace(drafting_layers=drafts if keys.flag("use_mtp", default=bool(drafts)) else 0)


def _all_layers_attend(keys: Keys, layers: int) -> None:
    kinds = keys.wholes("attn_type_list", length=layers)
    if kinds is not None and set(kinds) != {1}:
        raise keys.error("attn_type_list", "expected 1 (attention to all tokens) for each layer of this class")


def _granitemoe(keys: Keys) -> Decoder:
    layers, bias = num_layers(keys), keys.flag("attention_bias", default=False)
    shared = keys.whole("shared_intermediate_size", default=0)
    mixture = _local(keys, 8, 2).model_copy(update={"num_shared_experts": int(shared > 0), "shared_width": shared})
    attention = grouped(keys, qkv_bias=bias, output_bias=bias)
    rows = [LayerSpec(attention=attention, mlp=mixture)] * layers
    return decoder(keys, rows, tied=False, max_positions=2048, modules=Modules(mlp="block_sparse_moe"))


def _dense_first(
    keys: Keys, attentions: Sequence[GroupedAttention], mixture: Mixture, first: int, length: int
) -> Decoder:
    is_dense = dense_layers(keys, len(attentions), first)
    rows = mixed_layers(attentions, lambda layer: is_dense[layer], dense(keys), mixture)
    found = decoder(keys, rows, tied=False, max_positions=length)
    drafts = keys.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, null=0)
    return found._replace(drafting_layers=drafts)


def _glm4_moe(keys: Keys) -> Decoder:
    defaults = {"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "n_shared_experts": 1}
    bias = keys.flag("attention_bias", default=False)
    norm = "head" if keys.flag("use_qk_norm", default=False) else "none"
    attention = grouped(keys, kv_heads=8, qkv_bias=bias, qk_norm=norm)
    attentions = [attention] * num_layers(keys)
    return _dense_first(keys, attentions, routed(keys, defaults, "num_local_experts"), 1, 131072)


def _deepseek(keys: Keys) -> Decoder:
    """DeepSeekMoE, before latent attention: vLLM 0.33, models/deepseek_v2.py, and the configuration that its files
    name.
    """
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias)
    defaults = {"moe_intermediate_size": 1407, "n_shared_experts": 0}
    return _dense_first(keys, [attention] * num_layers(keys), routed(keys, defaults), 0, 2048)


def _dots1(keys: Keys) -> Decoder:
    """Windows are in the layers behind `max_window_layers`, of which published models have none."""
    layers, first = num_layers(keys), keys.whole("max_window_layers", default=62)
    marks = [layer >= first for layer in range(layers)]
    marks = marks if "layer_types" not in keys else window_pattern(keys, layers)
    window = keys.whole("sliding_window", default=4096, null=0)
    keys.flag("use_sliding_window", default=False)  # the class does not look at it
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias, qk_norm="head")
    mixture = routed(keys, {"moe_intermediate_size": 1408, "n_shared_experts": 0}, "num_local_experts")
    return _dense_first(keys, with_windows(attention, window, marks), mixture, 0, 2048)


def _bailing_moe(keys: Keys) -> Decoder:
    """Ling 1 and 2: remote code of inclusionAI, and vLLM 0.33, models/bailing_moe.py."""
    gated_activation(keys)
    width = keys.count("moe_intermediate_size")
    shared = keys.whole("num_shared_experts", default=0)
    mixture = Mixture(
        num_experts=keys.count("num_experts"),
        experts_per_token=keys.count("num_experts_per_tok"),
        width=width,
        num_shared_experts=shared,
        shared_width=keys.count("moe_shared_expert_intermediate_size", default=width) if shared else 0,
        router_bias=keys.flag("moe_router_enable_expert_bias", default=False),
    )
    norm = "head" if keys.flag("use_qk_norm", default=False) else "none"
    keys.expect("use_rmsnorm", True, why="is not modelled: norms of queries and keys have no biases")
    keys.expect("multi_gate", False, why="are routers for pictures and sound, which are not modelled")
    qkv_bias, bias = keys.flag("use_qkv_bias", default=False), keys.flag("use_bias", default=False)
    attention = grouped(keys, qkv_bias=qkv_bias or bias, output_bias=bias, qk_norm=norm)
    attentions = [attention] * num_layers(keys)
    return _dense_first(keys, attentions, check_top_k(keys, mixture, "num_experts_per_tok"), 0, 16384)


def _ernie4_5(keys: Keys) -> Decoder:
    bias = keys.flag("use_bias", default=False)
    attention = grouped(keys, head_dim=128, kv_heads=2, qkv_bias=bias, output_bias=bias)
    layer = LayerSpec(attention=attention, mlp=dense(keys, bias=bias))
    return decoder(keys, [layer] * num_layers(keys), tied=True, max_positions=131072)


def _ernie4_5_moe(keys: Keys) -> Decoder:
    layers, bias = num_layers(keys), keys.flag("use_bias", default=False)
    start, end = keys.whole("moe_layer_start_index", default=1), keys.value("moe_layer_end_index")
    every = keys.count("moe_layer_interval", default=1)
    if end in {None, -1}:
        end = layers - 1
    keys.check_whole("moe_layer_end_index", end, 0, "a whole number, or -1 for the last layer")
    width = keys.count("moe_intermediate_size", default=1536)
    mixture = Mixture(
        num_experts=keys.count("moe_num_experts", "num_experts", default=64),
        experts_per_token=keys.count("moe_k", "num_experts_per_tok", default=6),
        width=width,
        num_shared_experts=keys.whole("moe_num_shared_experts", default=2),
        shared_width=width,
        router_bias=True,
    )
    attention = grouped(keys, kv_heads=4, qkv_bias=bias, output_bias=bias)
    rows = mixed_layers(
        [attention] * layers,
        lambda layer: not (start <= layer <= end and (layer + 1) % every == 0),
        dense(keys, bias=bias),
        check_top_k(keys, mixture, "moe_k"),
    )
    found = decoder(keys, rows, tied=True, max_positions=131072)
    return found._replace(
        drafting_layers=keys.whole("num_nextn_predict_layers", default=0, null=0),
        extra_parameters={"bias of lm_head": found.vocab_size} if bias else {},
    )


def _hunyuan_attention(keys: Keys) -> GroupedAttention:
    bias = keys.flag("attention_bias", default=False)
    norm = "head" if keys.flag("use_qk_norm", default=True) else "none"
    attention = grouped(keys, qkv_bias=bias, output_bias=bias, qk_norm=norm)
    keys.expect("attention_head_dim", attention.head_dim, why=f"differs from head_dim, {attention.head_dim}")
    keys.expect("norm_type", "rms", why="is not known: norms of this family have no biases")
    keys.expect("add_classification_head", False, why="is a head beside that of the vocabulary, which is not modelled")
    keys.expect("use_mla", False, why="is latent attention, which this family is not known to have")
    keys.expect("mlp_bias", False, why="is not what the class does: its MLP has no biases")
    return attention


def _hunyuan_v1_dense(keys: Keys) -> Decoder:
    keys.expect("use_cla", False, why="is not what the class does: each layer caches keys and values of its own")
    keys.know("cla_share_factor")
    layer = LayerSpec(attention=_hunyuan_attention(keys), mlp=dense(keys))
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=2048)


def _hunyuan_v1_moe(keys: Keys) -> Decoder:
    """Sizes of the mixture stand in the file once for all layers or in lists; the shared expert has the width of the
    dense MLP. With `use_cla` layers in between read keys and values of the one before (Hunyuan-Large, arXiv
    2411.02265).
    """
    layers, width = num_layers(keys), keys.count("intermediate_size")
    gated_activation(keys)
    mixed = keys.flag("use_mixed_mlp_moe", default=True)
    experts = keys.per_layer("num_experts", "num_local_experts", layers=layers, default=1)
    top_k = keys.per_layer("moe_topk", "num_experts_per_tok", layers=layers, default=1)
    widths = keys.per_layer("moe_intermediate_size", layers=layers, default=width)
    shared = keys.per_layer("num_shared_expert", layers=layers, default=1, least=0)
    attention = _hunyuan_attention(keys)
    first = keys.whole("moe_layer_num_skipped", default=0, null=0)
    share = keys.count("cla_share_factor", default=2, null=2)
    share = share if keys.flag("use_cla", default=False) else 1
    reader = attention.model_copy(update={"shares_kv": True})
    rows = []
    for layer in range(layers):
        mixture = Mixture(
            num_experts=experts[layer],
            experts_per_token=top_k[layer],
            width=widths[layer],
            num_shared_experts=shared[layer] if mixed else 0,
            shared_width=width,
        )
        mlp = DenseMlp(width=width) if layer < first else check_top_k(keys, mixture, "moe_topk")
        rows.append(LayerSpec(attention=reader if layer % share else attention, mlp=mlp))
    return decoder(keys, rows, tied=False, max_positions=2048)


def _grok(keys: Keys) -> Decoder:
    """Grok-1; Grok-2, which has a dense MLP beside the experts, and says so in a file whose `model_type` is `git`."""
    gated_activation(keys)
    keys.expect("sliding_window_size", -1, why="is a window, which this family is not known to have")
    keys.expect("global_attn_every_n", 1, why="leaves layers to windows, which this family is not known to have")
    width = keys.count("intermediate_size")
    mixture = Mixture(
        num_experts=keys.count("num_local_experts", "num_experts"),
        experts_per_token=keys.count("num_experts_per_tok"),
        width=keys.count("moe_intermediate_size", default=width),
        residual_width=width if keys.flag("residual_moe", default=False) else 0,
    )
    layer = LayerSpec(attention=grouped(keys), mlp=check_top_k(keys, mixture, "num_experts_per_tok"), norms=4)
    return decoder(keys, [layer] * num_layers(keys), tied=False, modules=_BLOCK_SPARSE)


_GROK = (
    *("attn_output_multiplier", "embedding_multiplier_scale", "output_multiplier_scale", "max_attn_value"),
    *("attn_temperature_len", "router_logit_softcapping", "rope_type", "original_max_position_embeddings"),
    *("scaling_factor", "extrapolation_factor", "attn_factor", "beta_fast", "beta_slow"),
)
"""Factors and bounds of values; scaling of positions, after which `max_position_embeddings` is stated."""

_HUNYUAN = (
    *("class_num", "dense_list", "pool_type", "org_vocab_size", "eod_token_id", "im_end_id", "im_newline_id"),
    *("im_start_id", "text_end_id", "text_start_id", "mask_init_id", "pad_id", "use_rotary_pos_emb", "xdrope_section"),
    *("position_embedding_xdrope", "capacity_factor", "moe_drop_tokens", "moe_random_routing_dropped_token"),
    *("group_limited_greedy", "num_media_embeds"),
)
"""A head for classes, which is not there; numbers of tokens; positions; how experts were trained."""

FAMILIES = (
    Family("mixtral", ("mixtral",), ("MixtralForCausalLM",), _mixtral),
    Family(
        "phimoe",
        ("phimoe",),
        ("PhimoeForCausalLM", "PhiMoEForCausalLM"),
        _phimoe,
    ),
    Family("minimax_m2", ("minimax_m2",), ("MiniMaxM2ForCausalLM",), _minimax_m2),
    Family(
        "granitemoe",
        ("granitemoe", "granitemoeshared"),
        ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        _granitemoe,
    ),
    Family("glm4_moe", ("glm4_moe",), ("Glm4MoeForCausalLM",), _glm4_moe),
    Family("deepseek", ("deepseek",), ("DeepseekForCausalLM",), _deepseek),
    Family("dots1", ("dots1",), ("Dots1ForCausalLM",), _dots1),
    Family(
        "bailing_moe",
        ("bailing_moe", "bailing_moe_v2"),
        ("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"),
        _bailing_moe,
        (
            "mtp_loss_scaling_factor",
            "score_function",
            "router_dtype",
            "embedding_dropout",
            "output_dropout",
            "norm_head",
            "norm_softmax",
            "moe_router_topk_scaling_factor",
        ),
    ),
    Family("ernie4_5", ("ernie4_5",), ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"), _ernie4_5),
    Family(
        "ernie4_5_moe",
        ("ernie4_5_moe",),
        ("Ernie4_5_MoeForCausalLM", "Ernie4_5_MoEForCausalLM"),
        _ernie4_5_moe,
        ("moe_capacity", "moe_norm_min", "moe_use_aux_free", "moe_gate"),
    ),
    Family("hunyuan_v1_dense", ("hunyuan_v1_dense",), ("HunYuanDenseV1ForCausalLM",), _hunyuan_v1_dense, _HUNYUAN),
    Family(
        "hunyuan_v1_moe",
        ("hunyuan_v1_moe", "hunyuan"),
        ("HunYuanMoEV1ForCausalLM", "HunYuanForCausalLM"),
        _hunyuan_v1_moe,
        _HUNYUAN,
    ),
    Family("grok", ("grok-1",), ("Grok1ForCausalLM", "Grok1ModelForCausalLM"), _grok, _GROK),
)
