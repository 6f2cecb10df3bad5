"""What lies before and after the attention of a layer: its projections, positions, the write to the cache."""

from functools import singledispatch

from simserve.cost.blocks.parts import Operators, Parts
from simserve.cost.kinds.over_kv import kv_heads_of_gpu
from simserve.cost.operators import Elementwise
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.layers.attention import GroupedAttention, LatentAttention
from simserve.spec.layers.weights import WeightFormat


@singledispatch
def before(attention: object, parts: Parts) -> Operators:  # noqa: ARG001
    """Operators from the normed hidden state to what attention reads.

    Raises:
        ValueError: attention of this class is not modelled yet.
    """
    raise ValueError(f"{getattr(attention, 'kind', attention)} layers are not simulated yet")


@singledispatch
def quantize_input(attention: object, parts: Parts) -> Operators:  # noqa: ARG001
    """What brings the hidden state into the format of the first projection."""
    return ()


@singledispatch
def output(attention: object, parts: Parts) -> Operators:  # noqa: ARG001
    """Operators from the result of attention to the hidden state, its sum over the GPUs left out.

    Raises:
        ValueError: attention of this class is not modelled yet.
    """
    raise ValueError(f"{getattr(attention, 'kind', attention)} layers are not simulated yet")


@before.register
def _(attention: GroupedAttention, parts: Parts) -> Operators:
    ranks, act = parts.sharding.ranks, parts.act
    heads, kv_heads = attention.num_heads / ranks, kv_heads_of_gpu(attention, ranks)
    q, k, v = heads * attention.head_dim, kv_heads * attention.head_dim, kv_heads * attention.value_dim
    if attention.shares_kv:
        k = v = 0.0
    columns = q + k + (0.0 if attention.keys_are_values else v)
    columns += q if attention.gate == "element" else 0.0
    turned = q + k
    norm = (Elementwise("qk_norm", 2 * turned * act),) if attention.qk_norm != "none" else ()
    rope = Elementwise("rope", 2 * turned * act)
    written = (k + v) * (act + bytes_per_element(parts.model.kv_dtype))
    write = (Elementwise("cache_write", written),) if written else ()
    return (parts.linear("qkv", parts.hidden, columns, attention.qkv), *norm, rope, *write)


@quantize_input.register
def _(attention: GroupedAttention, parts: Parts) -> Operators:
    return parts.quantize("qkv", parts.hidden, attention.qkv)


@output.register
def _(attention: GroupedAttention, parts: Parts) -> Operators:
    heads = attention.num_heads / parts.sharding.ranks
    width = heads * attention.value_dim
    gate: Operators = ()
    if attention.gate == "head":
        gate = (parts.linear("head_gate", parts.hidden, heads),)
    if attention.gate != "none":
        gate = (*gate, Elementwise("output_gate", 3 * width * parts.act))
    return (*gate, *_project(width, attention.out, parts))


@before.register
def _(attention: LatentAttention, parts: Parts) -> Operators:
    """Projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). Expanding the latent costs the same
    FLOPs a token whether it is done for keys and values (prefill) or absorbed into query and output (decode).
    """
    heads, act = attention.num_heads / parts.sharding.ranks, parts.act
    latent, rank = attention.kv_elements, attention.q_lora_rank
    q = heads * attention.qk_head_dim
    down = parts.linear("latent_down", parts.hidden, rank + latent, attention.latent)
    up = parts.linear("q_up", rank or parts.hidden, q, attention.queries)
    norm = Elementwise("latent_norm", 2 * (rank + attention.kv_lora_rank) * act)
    expanded = heads * (attention.qk_nope_head_dim + attention.v_head_dim)
    expand = parts.linear("kv_up", attention.kv_lora_rank, expanded, attention.expand)
    kv_bytes = latent * bytes_per_element(parts.model.kv_dtype)
    return down, norm, up, expand, Elementwise("rope_and_cache_write", (2 * q + latent) * act + kv_bytes)


@output.register
def _(attention: LatentAttention, parts: Parts) -> Operators:
    width = attention.num_heads / parts.sharding.ranks * attention.v_head_dim
    gate: Operators = ()
    if attention.output_gate:
        gate = (
            parts.linear("output_gate_proj", parts.hidden, width),
            Elementwise("output_gate", 3 * width * parts.act),
        )
    return (*gate, *_project(width, attention.out, parts))


def _project(width: float, weights: WeightFormat | None, parts: Parts) -> Operators:
    """The projection of the output, behind what brings it into the format of its weights."""
    quantize = () if parts.sharding.fusions.attention_quant else parts.quantize("out", width, weights)
    return (*quantize, parts.linear("out", width, parts.hidden, weights))
