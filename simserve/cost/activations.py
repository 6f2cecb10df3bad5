"""Peak of the activations in vLLM's profiling run: one forward pass of `max_num_batched_tokens`, then the sampler.

The two do not coincide, so the larger counts. Buffers are what is alive at the fullest moment, in bytes a token or a
row; weights and KV are not among them.
"""

from typing import Literal

from simserve.spec.dtypes import bytes_per_element
from simserve.spec.layers.attention import GroupedAttention, LatentAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import DenseMlp
from simserve.spec.model import ModelSpec

SAMPLER_BYTES = 14
"""Bytes for each logit of the dummy sampling step: 16-bit logits, fp32 logits, probabilities and noise (or the masked
logits of FlashInfer). vLLM 0.32, v1/sample/sampler.py and ops/topk_topp_sampler.py."""

SORTING_SAMPLER_BYTES = 38
"""The same while the sampler sorted the vocabulary (vLLM v0): values, 64-bit indices and the sort's scratch on top.
Start-up logs: 1.19 GiB for 256 rows of 128256 logits (Llama-3.1-8B), 1.40 GiB for 256 of 151936 (Qwen3-8B)."""

_SAMPLER_PROGRAMS = 128
"""Rows of fp32 logits that the sampler's kernel keeps as scratch: one for each multiprocessor, about 128 of them."""

MLA_WORKSPACE_TOKENS = 64 * 1024
"""Most tokens of history that MLA expands at once (vLLM 0.32, determine_chunked_prefill_workspace_size)."""


def activation_bytes(
    model: ModelSpec,
    ranks: int,
    *,
    tokens: int,
    rows: int,
    max_model_len: int,
    sampler_bytes: int = SAMPLER_BYTES,
    counted: Literal["allocated", "reserved"] = "allocated",
) -> int:
    """Bytes of the activation peak on one of `ranks` GPUs.

    `tokens`: max_num_batched_tokens; `rows`: sequences sampled in the profiling run, min(max_num_seqs, tokens).
    `counted`: vLLM before 0.4.3 saw all that the allocator had reserved, each buffer of a layer once, in place of what
    was alive at a time.
    """
    layer = _reserved_bytes(model, ranks) if counted == "reserved" else _layer_bytes(model, ranks)
    forward = tokens * layer + _mla_workspace_bytes(model, ranks, rows, max_model_len)
    act = bytes_per_element(model.activation_dtype)
    hidden = model.hidden_size * act
    logits = rows * sampler_bytes + min(rows, _SAMPLER_PROGRAMS) * 4
    sampler = model.vocab_size * logits + (tokens + 2 * rows) * hidden
    return round(max(forward, sampler))


def _layer_bytes(model: ModelSpec, ranks: int) -> float:
    """Bytes a token at the fullest moment of the fullest layer: three of hidden size (residual, input and output of the
    block) and the widest block between them.
    """
    act = bytes_per_element(model.activation_dtype)
    widest = max(max(_attention_width(layer, ranks), _mlp_width(layer, model, ranks)) for layer in model.layers)
    return act * (3 * model.hidden_size + widest)


def _reserved_bytes(model: ModelSpec, ranks: int) -> float:
    """Bytes a token of all buffers of a layer side by side, one more of hidden size among them."""
    act = bytes_per_element(model.activation_dtype)
    widest = max(_attention_width(layer, ranks) + _mlp_width(layer, model, ranks) for layer in model.layers)
    return act * (4 * model.hidden_size + widest)


def _attention_width(layer: LayerSpec, ranks: int) -> float:
    """Elements a token of queries, keys, values and the output of attention."""
    attention = layer.attention
    if isinstance(attention, LatentAttention):
        heads = attention.num_heads / ranks
        return attention.q_lora_rank + attention.kv_elements + heads * (attention.qk_head_dim + attention.v_head_dim)
    if not isinstance(attention, GroupedAttention):
        return 0.0
    heads, kv_heads = attention.num_heads / ranks, max(1.0, attention.num_kv_heads / ranks)
    gate = attention.head_dim if attention.gate == "element" else 0
    return (heads + kv_heads) * (attention.head_dim + attention.value_dim) + heads * gate


def _mlp_width(layer: LayerSpec, model: ModelSpec, ranks: int) -> float:
    """Elements a token of gate, up and their product; of the two workspaces of a mixture (vLLM 0.32, triton_moe.py)."""
    mlp = layer.mlp
    if mlp is None:
        return 0.0
    if isinstance(mlp, DenseMlp):
        return (mlp.first_outputs + mlp.width) / ranks
    width, hidden = mlp.width / ranks, mlp.latent_size or model.hidden_size
    first = mlp.first_outputs(mlp.width) / ranks
    beside = 3 * (mlp.num_shared_experts * mlp.shared_width + mlp.residual_width) / ranks
    return mlp.experts_per_token * (max(width, hidden) + max(first, hidden)) + beside


def _mla_workspace_bytes(model: ModelSpec, ranks: int, rows: int, max_model_len: int) -> float:
    """Keys and values of expanded history, which the profiling run reserves in full."""
    widths = [
        attention.num_heads / ranks * (attention.qk_nope_head_dim + attention.v_head_dim)
        for attention in model.attentions
        if isinstance(attention, LatentAttention)
    ]
    tokens = min(max(8 * max_model_len, 64 * rows), MLA_WORKSPACE_TOKENS)
    return tokens * max(widths, default=0.0) * bytes_per_element(model.activation_dtype)
