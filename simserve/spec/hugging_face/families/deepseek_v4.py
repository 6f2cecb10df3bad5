"""DeepSeek-V4: one latent a token for keys and values, a window in each layer, compressed latents behind it; several
residual streams that mixers join and part.

Keys and defaults: transformers 5.24, deepseek_v4; what is cached: vLLM 0.33, models/deepseek_v4. Files that say
`model_type: deepseek_ref` are of the same architecture.
"""

from simserve.spec.hugging_face.families.sparse_latent import indexer
from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import routed
from simserve.spec.hugging_face.parts import decoder, num_layers
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.sparse import CompressedAttention
from simserve.spec.quantities import shown

_CHOSEN, _ALL = 4, 128
"""Tokens for one compressed latent where an indexer chooses among them, and where all are read."""

_EXPERTS = {"n_routed_experts": 256, "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "n_shared_experts": 1}


def _attentions(keys: Keys, layers: int) -> list[CompressedAttention]:
    ratios = keys.wholes("compress_ratios", length=layers)
    if ratios is None:
        raise keys.error("compress_ratios", "is needed and not given: a ratio for each layer")
    unknown = next((ratio for ratio in ratios if ratio not in {0, _CHOSEN, _ALL}), None)
    if unknown is not None:
        raise keys.error("compress_ratios", f"expected 0, {_CHOSEN} or {_ALL} in the list, got {shown(unknown)}")
    heads, groups = keys.count("num_attention_heads", default=64), keys.count("o_groups", default=8)
    if heads % groups:
        raise keys.error("o_groups", f"{groups} does not divide num_attention_heads {heads}")
    keys.expect("num_key_value_heads", 1, why="heads of keys and values: this family has one latent for all")
    dim, rope = keys.count("head_dim", default=512), keys.count("qk_rope_head_dim", default=64)
    if rope > dim:
        raise keys.error("qk_rope_head_dim", f"{rope} is more than head_dim {dim}")
    plain = CompressedAttention(
        num_heads=heads,
        head_dim=dim,
        rope_dim=rope,
        q_lora_rank=keys.count("q_lora_rank", default=1024),
        output_groups=groups,
        o_lora_rank=keys.count("o_lora_rank", default=1024),
        window=keys.count("sliding_window", default=128),
    )
    own = indexer(keys, 64)
    kinds = {
        0: plain,
        _CHOSEN: plain.model_copy(update={"ratio": _CHOSEN, "indexer": own}),
        _ALL: plain.model_copy(update={"ratio": _ALL}),
    }
    return [kinds[ratio] for ratio in ratios]


def _deepseek_v4(keys: Keys) -> Decoder:
    layers, hidden = num_layers(keys), keys.count("hidden_size", default=4096)
    keys.expect("attention_bias", False, why="is not known: this family has no bias")
    streams = keys.count("hc_mult", default=4)
    mixer = (2 + streams) * streams * (streams * hidden + 1) + 3
    mixture = routed(keys, _EXPERTS)
    hashed = keys.whole("num_hash_layers", default=3)
    rows = [LayerSpec(attention=each, mlp=mixture, extra_parameters=2 * mixer) for each in _attentions(keys, layers)]
    found = decoder(keys, rows, tied=False, max_positions=1048576, modules=_MODULES)
    return found._replace(
        drafting_layers=keys.whole("num_nextn_predict_layers", default=1, null=0),
        extra_parameters={"mixer of the residual streams": streams * (streams * hidden + 1) + 1},
        left_out=(f"the tables that route tokens in its first {hashed} layers by their numbers",),
    )


_MODULES = Modules(
    "layers",
    "attn",
    "ffn",
    {
        f"{part}{ours}": f"{part}{theirs}"
        for part in ("experts.0.", "shared_experts.")
        for ours, theirs in (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3"))
    },
)

_HARMLESS = ("hc_eps", "hc_sinkhorn_iters", "expert_dtype", "index_skip_topk_offset")
"""Steps of a mixer's kernel; the format of the experts, which is read with the other formats."""

FAMILIES = (Family("deepseek_v4", ("deepseek_v4",), ("DeepseekV4ForCausalLM",), _deepseek_v4, _HARMLESS),)
