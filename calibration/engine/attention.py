"""Attention over a paged KV cache: one function, two back ends.

All new tokens of a step have their KV in the cache already, so that a row reads history and new tokens alike through
its block table. Decodes and chunks of prompts are computed apart. `torch` runs anywhere: row by row, or for a captured
graph, whose lengths the host cannot know, all rows at once and as wide as the block table. `triton` runs the kernels
of `kernels/`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from calibration.engine.device_batch import DeviceBatch


def attention(query: Tensor, keys: Tensor, values: Tensor, batch: DeviceBatch, backend: str) -> Tensor:
    """Causal attention of the new tokens of a batch, scaled by head_dim^-1/2.

    `query` is (tokens, heads, head_dim), rows in the order of the batch; `keys` and `values` are one layer of the
    cache, (blocks, block_size, kv_heads, head_dim). Returns (tokens, heads, head_dim), contiguous.
    """
    if backend == "triton":
        return _triton(query, keys, values, batch)
    if batch.contexts is None:
        return _decode_all(query, keys, values, batch)
    return _row_by_row(query, keys, values, batch)


def _triton(query: Tensor, keys: Tensor, values: Tensor, batch: DeviceBatch) -> Tensor:
    from calibration.engine.kernels.decode import decode_attention
    from calibration.engine.kernels.prefill import prefill_attention

    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    if batch.num_decodes:
        decode_attention(out, query, keys, values, batch)
    if batch.chunks:
        prefill_attention(out, query, keys, values, batch)
    return out


def _row_by_row(query: Tensor, keys: Tensor, values: Tensor, batch: DeviceBatch) -> Tensor:
    assert batch.contexts is not None
    if not batch.row_blocks:
        for row, context in zip(batch.block_table, batch.contexts, strict=True):
            batch.row_blocks.append(row[: -(-context // keys.shape[1])])
    lengths = [1] * batch.num_decodes + [num_tokens for num_tokens, _ in batch.chunks]
    grouped = query.unflatten(1, (keys.shape[2], -1)).split(lengths)
    rows = []
    for index, (q, context, blocks) in enumerate(zip(grouped, batch.contexts, batch.row_blocks, strict=True)):
        k, v = (cache.index_select(0, blocks).flatten(0, 1)[None, :context].transpose(1, 2) for cache in (keys, values))
        if len(q) == 1:  # the query heads that share a key head stand where the tokens of a sequence would
            rows.append(F.scaled_dot_product_attention(q, k, v))
            continue
        if index not in batch.masks:
            batch.masks[index] = _causal_mask(len(q), context, query)
        heads = q.flatten(1, 2)[None].transpose(1, 2)
        out = F.scaled_dot_product_attention(heads, k, v, attn_mask=batch.masks[index], enable_gqa=True)
        rows.append(out[0].transpose(0, 1).unflatten(1, q.shape[1:3]))
    return torch.cat(rows).flatten(1, 2)


def _causal_mask(num_tokens: int, context: int, like: Tensor) -> Tensor:
    """What is added to the scores of the last `num_tokens` of `context` tokens: 0 up to oneself, -inf beyond."""
    return like.new_full((num_tokens, context), -torch.inf).triu_(context - num_tokens + 1)


def _decode_all(query: Tensor, keys: Tensor, values: Tensor, batch: DeviceBatch) -> Tensor:
    """Decodes of any length at once; shapes depend on the shape of the block table alone."""
    num_rows, num_heads, head_dim = query.shape
    size, num_kv_heads = keys.shape[1:3]
    k, v = (cache[batch.block_table].flatten(1, 2).transpose(1, 2) for cache in (keys, values))
    width = batch.block_table.shape[1] * size
    inside = torch.arange(width, device=query.device) < batch.context_lens[:, None]
    grouped = query.reshape(num_rows, num_kv_heads, num_heads // num_kv_heads, head_dim)
    out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=inside[:, None, None])
    return out.reshape(num_rows, num_heads, head_dim)
