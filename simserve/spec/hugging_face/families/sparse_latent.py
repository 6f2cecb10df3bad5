"""DeepSeek-V3.2 and GLM-5: latent attention that reads the tokens an indexer chooses.

Keys and defaults: transformers 5.24, deepseek_v32 and glm_moe_dsa; the index cache: vLLM 0.33, models/deepseek_v32.
"""

from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import dense_layers, latent, pattern, routed
from simserve.spec.hugging_face.parts import decoder, dense, mixed_layers, num_layers
from simserve.spec.layers.attention import Indexer, LatentAttention
from simserve.spec.quantities import shown

_FULL, _SHARED = "full", "shared"
_TYPES = ("indexed_attention", "deepseek_sparse_attention")
"""What all layers are called."""
_SCALED = 128
"""Elements of an index key, in fp8, that share one scale in fp32."""

_V32 = {
    **{"num_attention_heads": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048},
    **{"n_shared_experts": 1, "q_lora_rank": 1536, "index_n_heads": 64, "max_position_embeddings": 163840},
}
_GLM = {
    **_V32,
    **{"num_attention_heads": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "q_lora_rank": 2048},
    **{"index_n_heads": 32, "max_position_embeddings": 202752},
}


def indexer(keys: Keys, heads: int) -> Indexer:
    """The indexer of DeepSeek-V3.2: keys in fp8 with a scale in fp32 for each 128 elements. `heads`: the default."""
    dim = keys.count("index_head_dim", default=128)
    return Indexer(
        num_heads=keys.count("index_n_heads", default=heads),
        head_dim=dim,
        topk=keys.count("index_topk", default=2048),
        cache_bytes=dim + 4 * -(-dim // _SCALED),
    )


def _has_indexer(keys: Keys, layers: int) -> list[bool]:
    """Whether each layer has an indexer, or is sparse with the tokens that an earlier one chose: by a list, by letters,
    or by every how many layers one has it behind the first ones.
    """
    every = keys.count("index_topk_freq", default=1)
    offset = keys.whole("index_skip_topk_offset", default=2)
    made = [_FULL if max(layer - offset + 1, 0) % every == 0 else _SHARED for layer in range(layers)]
    letters = keys.text("index_topk_pattern", default="")
    if letters:
        if len(letters) < layers or set(letters) - {"F", "S"}:
            raise keys.error("index_topk_pattern", f"expected F or S for each of {layers} layers, got {shown(letters)}")
        made = [_FULL if letter == "F" else _SHARED for letter in letters[:layers]]
    stated = keys.words("indexer_types", known=(_FULL, _SHARED), length=layers)
    other = "index_topk_pattern" if letters else "index_topk_freq"
    kinds = pattern(keys, "indexer_types", stated, made, other)
    if layers and kinds[0] != _FULL:
        raise keys.error("indexer_types", "the first layer shares an index, yet there is none before it")
    return [kind == _FULL for kind in kinds]


def _decoder(keys: Keys, defaults: dict[str, int], first_dense: int, has_indexer: list[bool]) -> Decoder:
    layers = num_layers(keys)
    base = latent(keys, defaults, q_lora_rank=defaults["q_lora_rank"])
    if not base.q_lora_rank:
        raise keys.error("q_lora_rank", "is needed: the indexer's queries come from the latent of this size")
    own = base.model_copy(update={"indexer": indexer(keys, defaults["index_n_heads"])})
    shared = base.model_copy(update={"shares_index": True})
    attentions: list[LatentAttention] = [own if each else shared for each in has_indexer]
    is_dense = dense_layers(keys, layers, first_dense)
    keys.words("layer_types", known=_TYPES, length=layers)
    mixture = routed(keys, defaults, "num_experts")
    bias = keys.flag("mlp_bias", default=False)
    rows = mixed_layers(attentions, lambda layer: is_dense[layer], dense(keys, bias=bias), mixture)
    found = decoder(keys, rows, tied=False, max_positions=defaults["max_position_embeddings"])
    return found._replace(drafting_layers=keys.whole("num_nextn_predict_layers", default=0, null=0))


def _deepseek_v32(keys: Keys) -> Decoder:
    return _decoder(keys, _V32, 3, [True] * num_layers(keys))


def _glm_moe_dsa(keys: Keys) -> Decoder:
    return _decoder(keys, _GLM, 3, _has_indexer(keys, num_layers(keys)))


_HARMLESS = ("head_dim", "indexer_rope_interleave", "index_share_for_mtp_iteration", "moe_router_dtype")
"""`head_dim`: the classes put that of the positions in its place; the rest: positions, drafts, a format of scores."""

FAMILIES = (
    Family("deepseek_v32", ("deepseek_v32",), ("DeepseekV32ForCausalLM",), _deepseek_v32, _HARMLESS),
    Family("glm_moe_dsa", ("glm_moe_dsa",), ("GlmMoeDsaForCausalLM",), _glm_moe_dsa, _HARMLESS),
)
