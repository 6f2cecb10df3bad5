"""MiniMax: Text-01 and M1, seven layers of lightning attention, then one of full attention; M3, sparse attention.

Keys and defaults: transformers 5.24, minimax and minimax_m3_vl; those of M1: vLLM 0.22, its last with that model; the
index cache of M3: vLLM 0.33, models/minimax_m3.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import FULL, GATED, check_top_k, decoder, gated_activation, grouped, num_layers
from simserve.spec.layers.attention import Indexer
from simserve.spec.layers.layer import LayerSpec, Mlp
from simserve.spec.layers.linear_attention import Lightning
from simserve.spec.layers.mlp import DenseMlp, Mixture

_LINEAR, _SPARSE = "linear_attention", "minimax_m3_sparse"
_EXPERTS = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_MODULES = Modules(
    renamed={f"experts.0.{ours}": f".block_sparse_moe.experts.0.{theirs}" for ours, theirs in _EXPERTS.items()}
    | {"shared_experts.": ".block_sparse_moe.shared_experts."}
)


def _mixture(keys: Keys, experts: int, per_token: int, width: int) -> Mixture:
    mixture = Mixture(
        num_experts=keys.count("num_local_experts", default=experts),
        experts_per_token=keys.count("num_experts_per_tok", default=per_token),
        width=keys.count("intermediate_size", default=width),
    )
    return check_top_k(keys, mixture, "num_experts_per_tok")


def _minimax(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    gated_activation(keys)
    keys.expect("sliding_window", why="is a window that this family is not known to use; remove it")
    keys.expect("shared_intermediate_size", 0, [0] * layers, why="are shared experts, which are not known here")
    keys.expect("postnorm", True, why="is not known: norms of this family come after")
    full = grouped(keys, kv_heads=8)
    lightning = Lightning(num_heads=full.num_heads, num_kv_heads=full.num_heads, head_dim=full.head_dim)
    kinds = keys.words("layer_types", known=(FULL, _LINEAR), length=layers)
    numbers = keys.wholes("attn_type_list", length=layers)
    if numbers is not None and kinds is not None:
        raise keys.error("attn_type_list", "says the same as layer_types; leave one of them")
    if numbers is not None:
        if set(numbers) - {0, 1}:
            raise keys.error("attn_type_list", "expected 0 for lightning attention or 1 for full in the list")
        kinds = [FULL if number else _LINEAR for number in numbers]
    if kinds is None:
        kinds = [_LINEAR if layer % 2 else FULL for layer in range(layers)]
    mixture = _mixture(keys, 8, 2, 14336)
    rows = [LayerSpec(attention=lightning if kind == _LINEAR else full, mlp=mixture) for kind in kinds]
    return decoder(keys, rows, tied=False, max_positions=4096 * 32, modules=_MODULES)


def _is_marked(keys: Keys, name: str, layers: int) -> list[bool] | None:
    """A list of 0 and 1 for each layer; None where it is not there."""
    marks = keys.wholes(name, length=layers)
    if marks is not None and set(marks) - {0, 1}:
        raise keys.error(name, "expected 0 or 1 for each layer in the list")
    return None if marks is None else [mark == 1 for mark in marks]


def _sparse_layers(keys: Keys, layers: int) -> tuple[list[bool], Indexer | None]:
    """Which layers are sparse, and their indexer."""
    section = keys.section("sparse_attention_config")
    kinds = keys.words("layer_types", known=(FULL, _SPARSE), length=layers)
    sparse = None if kinds is None else [kind == _SPARSE for kind in kinds]
    if section is not None:
        section.expect("use_sparse_attention", True, why="beside sparse layers is not known; remove the section")
        section.know("sparse_score_type", "sparse_init_block", "sparse_local_block")
        own = _is_marked(section, "sparse_attention_freq", layers)
        if sparse is not None and own is not None and own != sparse:
            raise keys.error("layer_types", "says of other layers than sparse_attention_freq that they are sparse")
        sparse = own if sparse is None else sparse
        disabled = _is_marked(section, "sparse_disable_index_value", layers)
        if disabled is not None and any(marked and not off for marked, off in zip(sparse or [], disabled, strict=True)):
            raise section.error("sparse_disable_index_value", "0 in a sparse layer: index values are not modelled")
    if sparse is None or not any(sparse):
        return [False] * layers, None
    sizes = keys if section is None else section
    dim = sizes.count("sparse_index_dim", "index_head_dim", default=128)
    blocks = sizes.count("sparse_topk_blocks", "index_topk_blocks", default=16)
    tokens = blocks * sizes.count("sparse_block_size", "index_block_size", default=128)
    heads = sizes.count("sparse_num_index_heads", "index_n_heads", default=4)
    return sparse, Indexer(num_heads=heads, head_dim=dim, topk=tokens, cache_bytes=2 * dim)


def _minimax_m3(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    known = (*GATED, "swigluoai")
    keys.expect("hidden_act", *known, why="is not an activation that this family is known to have a gate with")
    keys.expect("attention_output_gate", False, why="is a gate of attention, which is not modelled in this family")
    keys.expect("use_qk_norm", True, why="is not known: queries and keys have norms in this family")
    keys.expect("qk_norm_type", "per_head", why="is not known: norms of queries and keys are of each head")
    full = grouped(keys, kv_heads=4, head_dim=128, qk_norm="head")
    sparse, indexer = _sparse_layers(keys, layers)
    attentions = {False: full, True: full.model_copy(update={"indexer": indexer})}
    dense = _is_marked(keys, "moe_layer_freq", layers)
    is_moe = [True] * layers if dense is None else dense
    first = keys.whole("first_k_dense_replace", default=0, null=0)
    if first and is_moe != [layer >= first for layer in range(layers)]:
        raise keys.error("first_k_dense_replace", "says of other layers than moe_layer_freq that they are dense")
    kinds = keys.words("mlp_layer_types", known=("dense", "sparse"), length=layers)
    if kinds is not None:
        if dense is not None and [kind == "sparse" for kind in kinds] != dense:
            raise keys.error("mlp_layer_types", "says of other layers than moe_layer_freq that they are dense")
        is_moe = [kind == "sparse" for kind in kinds]
    mixture = _mixture(keys, 128, 4, 3072)
    keys.expect("moe_intermediate_size", mixture.width, why="is not intermediate_size, the width of an expert")
    shared = {
        "num_shared_experts": keys.whole("n_shared_experts", default=1, null=0),
        "shared_width": keys.count("shared_intermediate_size", default=3072),
    }
    mlps: dict[bool, Mlp] = {
        True: mixture.model_copy(update=shared),
        False: DenseMlp(width=keys.count("dense_intermediate_size", default=12288)),
    }
    rows = [LayerSpec(attention=attentions[each], mlp=mlps[moe]) for each, moe in zip(sparse, is_moe, strict=True)]
    found = decoder(keys, rows, tied=False, max_positions=524288, modules=_MODULES)
    drafting = keys.whole("num_nextn_predict_layers", default=0, null=0)
    return found._replace(drafting_layers=keys.whole("num_mtp_modules", default=drafting, null=0))


_ALPHAS = tuple(
    f"{kind}_{factor}_factor" for kind in ("full_attn", "linear_attn", "mlp") for factor in ("alpha", "beta")
)
_OLD_ALPHAS = tuple(
    f"layernorm_{kind}_{factor}"
    for kind in ("full_attention", "linear_attention", "mlp")
    for factor in ("alpha", "beta")
)
_TEXT = (*_ALPHAS, *_OLD_ALPHAS, "block_size", "shared_moe_mode")
"""Factors of residuals, tokens in a chunk of a kernel; the mode of shared experts, of which there are none."""
_M3 = ("swiglu_alpha", "use_gemma_norm", "use_routing_bias")
"""A factor of the activation, what a norm adds to its weights; a bias of the router's choice, which classes do not
count as a parameter.
"""

FAMILIES = (
    Family(
        "minimax", ("minimax", "minimax_text_01"), ("MiniMaxForCausalLM", "MiniMaxText01ForCausalLM"), _minimax, _TEXT
    ),
    Family("minimax_m1", ("minimax_m1",), ("MiniMaxM1ForCausalLM",), _minimax, _TEXT),
    Family(
        "minimax_m3",
        ("minimax_m3", "minimax_m3_vl_text"),
        ("MiniMaxM3ForCausalLM", "MiniMaxM3SparseForCausalLM"),
        _minimax_m3,
        _M3,
    ),
)
