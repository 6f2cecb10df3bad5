"""Prefill attention: chunks of prompts, causal among their own tokens, with all that came before in the paged cache.

One program serves a tile of query tokens of one chunk and one query head (the scheme of FlashAttention, arXiv
2307.08691). The new tokens' own KV is in the cache as well, so there is one loop over the block table, without a mask
up to the first token that some query of the tile may not see.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from calibration.engine.device_batch import DeviceBatch
from calibration.engine.kernels.decode import LOG2_E
from calibration.engine.kernels.launch import INTERPRETED, architecture_of, prefill_launch


@triton.jit
def attend_tiles(
    acc,
    total,
    largest,
    q,
    positions,
    keys,
    values,
    blocks,
    begin,
    end,
    context,
    kv_head,
    scale,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_KV: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Online softmax over the KV tokens `[begin, end)`; `blocks` points at the row of the block table."""
    dims = tl.arange(0, HEAD_DIM)
    for start in range(begin, end, TILE_KV):
        token = start + tl.arange(0, TILE_KV)
        inside = token < context if MASKED else tl.full([TILE_KV], True, tl.int1)
        block = tl.load(blocks + token // BLOCK_SIZE, mask=inside, other=0)
        slot = block.to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE
        at = (slot * NUM_KV_HEADS + kv_head) * HEAD_DIM
        k = tl.load(keys + at[None, :] + dims[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if MASKED:
            scores = tl.where(token[None, :] <= positions[:, None], scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - larger[:, None])
        shrink = tl.exp2(largest - larger)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(values + at[:, None] + dims[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        largest = larger
    return acc, total, largest


@triton.jit(do_not_specialize=["first_row", "table_stride"])
def paged_prefill(
    out,
    query,
    keys,
    values,
    block_table,
    query_starts,
    context_lens,
    scale,
    first_row,
    query_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_KV: tl.constexpr,
):
    """Program (tile of queries, chunk, query head). Rows of chunks begin at `first_row`; `scale` includes log2(e)."""
    tile = tl.program_id(0)
    row = first_row + tl.program_id(1)
    head = tl.program_id(2)
    first_token = tl.load(query_starts + row)
    num_tokens = tl.load(query_starts + row + 1) - first_token
    if tile * TILE_Q >= num_tokens:
        return
    context = tl.load(context_lens + row)
    dims = tl.arange(0, HEAD_DIM)
    index = tile * TILE_Q + tl.arange(0, TILE_Q)
    in_chunk = index[:, None] < num_tokens
    tokens = (first_token + index).to(tl.int64)
    q = tl.load(query + tokens[:, None] * query_stride + head * HEAD_DIM + dims[None, :], mask=in_chunk, other=0.0)

    history = context - num_tokens
    positions = history + index
    blocks = block_table + row.to(tl.int64) * table_stride
    kv_head = head // GROUP
    seen_by_all = (history + tile * TILE_Q) // TILE_KV * TILE_KV
    seen_by_any = tl.minimum(history + (tile + 1) * TILE_Q, context)
    acc = tl.zeros([TILE_Q, HEAD_DIM], tl.float32)
    total = tl.zeros([TILE_Q], tl.float32)
    largest = tl.full([TILE_Q], float("-inf"), tl.float32)
    acc, total, largest = attend_tiles(
        acc, total, largest, q, positions, keys, values, blocks, 0, seen_by_all, context, kv_head, scale,
        NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, TILE_KV, False,
    )  # fmt: skip
    acc, total, largest = attend_tiles(
        acc, total, largest, q, positions, keys, values, blocks, seen_by_all, seen_by_any, context, kv_head, scale,
        NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, TILE_KV, True,
    )  # fmt: skip
    place = out + (tokens[:, None] * (NUM_KV_HEADS * GROUP) + head) * HEAD_DIM + dims[None, :]
    tl.store(place, (acc / total[:, None]).to(out.dtype.element_ty), mask=in_chunk)


def prefill_attention(out: Tensor, query: Tensor, keys: Tensor, values: Tensor, batch: DeviceBatch) -> None:
    """Attention of the chunks of a batch, which follow its decodes, into `out`; other arguments as of `attention`."""
    _, num_heads, head_dim = query.shape
    block_size, num_kv_heads = keys.shape[1:3]
    launch = prefill_launch(head_dim, query.element_size(), architecture_of(query.device))
    assert not (INTERPRETED and query.dtype == torch.bfloat16), "Triton's interpreter multiplies bf16 wrongly"
    longest = max(num_tokens for num_tokens, _ in batch.chunks)
    paged_prefill[(triton.cdiv(longest, launch.tile_q), len(batch.chunks), num_heads)](
        out,
        query,
        keys,
        values,
        batch.block_table,
        batch.query_starts,
        batch.context_lens,
        head_dim**-0.5 * LOG2_E,
        batch.num_decodes,
        query.stride(0),
        batch.block_table.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=num_heads // num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        TILE_Q=launch.tile_q,
        TILE_KV=launch.tile_kv,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
