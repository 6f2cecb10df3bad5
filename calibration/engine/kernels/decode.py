"""Paged decode attention: one new token a row, all of its KV read once through the block table.

One program serves one row and one key head, with all the query heads that share it: KV is loaded once for the group.
The group is padded to 16, the least that a matrix unit multiplies. Softmax is online (arXiv 1805.02867), in base 2.
Where that makes fewer programs than the device has processors, several share the KV of a row, and a second kernel
combines what they found (the scheme of Flash-Decoding, crfm.stanford.edu/2023/10/12/flashdecoding.html).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from calibration.engine.device_batch import DeviceBatch
from calibration.engine.kernels.launch import INTERPRETED, architecture_of, decode_launch, num_splits

LOG2_E = 1.4426950408889634


@triton.jit(do_not_specialize=["table_stride"])
def paged_decode(
    parts,
    largest_out,
    total_out,
    query,
    keys,
    values,
    block_table,
    context_lens,
    scale,
    query_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_KV: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    """Program (row, key head, split). `scale` includes log2(e); strides: of a token of `query`, of a row of the table.

    With one split `parts` is the result, (rows, heads, head_dim). With more it is (rows, heads, splits, head_dim) in
    fp32, weighted but not divided, and the other two outputs are (rows, heads, splits).
    """
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    context = tl.load(context_lens + row)
    share = tl.cdiv(tl.cdiv(context, NUM_SPLITS), TILE_KV) * TILE_KV
    begin = split * share
    end = tl.minimum(begin + share, context)
    dims = tl.arange(0, HEAD_DIM)
    group = tl.arange(0, PADDED_GROUP)
    heads = kv_head * GROUP + group
    in_group = group[:, None] < GROUP
    q = tl.load(query + row * query_stride + heads[:, None] * HEAD_DIM + dims[None, :], mask=in_group, other=0.0)

    largest = tl.full([PADDED_GROUP], float("-inf"), tl.float32)
    total = tl.zeros([PADDED_GROUP], tl.float32)
    acc = tl.zeros([PADDED_GROUP, HEAD_DIM], tl.float32)
    for start in range(begin, end, TILE_KV):
        token = start + tl.arange(0, TILE_KV)
        inside = token < end
        block = tl.load(block_table + row * table_stride + token // BLOCK_SIZE, mask=inside, other=0)
        slot = block.to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE
        at = (slot * NUM_KV_HEADS + kv_head) * HEAD_DIM
        k = tl.load(keys + at[None, :] + dims[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - larger[:, None])
        shrink = tl.exp2(largest - larger)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(values + at[:, None] + dims[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        largest = larger
    place = (row * NUM_KV_HEADS * GROUP + heads) * NUM_SPLITS + split
    if NUM_SPLITS == 1:
        acc = acc / total[:, None]
    else:
        tl.store(largest_out + place, largest, mask=group < GROUP)
        tl.store(total_out + place, total, mask=group < GROUP)
    tl.store(parts + place[:, None] * HEAD_DIM + dims[None, :], acc.to(parts.dtype.element_ty), mask=in_group)


@triton.jit
def combine_splits(out, parts, largest, total, HEAD_DIM: tl.constexpr, NUM_SPLITS: tl.constexpr):
    """Program (row and head, flattened): softmax over all of a row's KV from the softmax over its shares."""
    index = tl.program_id(0)
    dims = tl.arange(0, HEAD_DIM)
    splits = index * NUM_SPLITS + tl.arange(0, NUM_SPLITS)
    peaks = tl.load(largest + splits)
    weights = tl.exp2(peaks - tl.max(peaks, 0))  # 0 where a row was too short for a split
    acc = tl.load(parts + splits[:, None] * HEAD_DIM + dims[None, :])
    combined = tl.sum(acc * weights[:, None], 0) / tl.sum(tl.load(total + splits) * weights, 0)
    tl.store(out + index * HEAD_DIM + dims, combined.to(out.dtype.element_ty))


def decode_attention(out: Tensor, query: Tensor, keys: Tensor, values: Tensor, batch: DeviceBatch) -> None:
    """Attention of the decodes of a batch, its first tokens, into `out`; other arguments as of `attention`."""
    _, num_heads, head_dim = query.shape
    block_size, num_kv_heads = keys.shape[1:3]
    launch = decode_launch(head_dim, query.element_size(), architecture_of(query.device))
    assert not (INTERPRETED and query.dtype == torch.bfloat16), "Triton's interpreter multiplies bf16 wrongly"
    group = num_heads // num_kv_heads
    longest = batch.block_table.shape[1] * block_size
    splits = num_splits(batch.num_decodes * num_kv_heads, longest, query.device)
    shape = (batch.num_decodes, num_heads, splits)
    parts = out if splits == 1 else query.new_empty((*shape, head_dim), dtype=torch.float32)
    largest, total = (out, out) if splits == 1 else query.new_empty((2, *shape), dtype=torch.float32)
    paged_decode[(batch.num_decodes, num_kv_heads, splits)](
        parts,
        largest,
        total,
        query,
        keys,
        values,
        batch.block_table,
        batch.context_lens,
        head_dim**-0.5 * LOG2_E,
        query.stride(0),
        batch.block_table.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group,
        PADDED_GROUP=max(16, triton.next_power_of_2(group)),
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        TILE_KV=launch.tile_kv,
        NUM_SPLITS=splits,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    if splits > 1:
        combine_splits[(batch.num_decodes * num_heads,)](
            out, parts, largest, total, HEAD_DIM=head_dim, NUM_SPLITS=splits, num_warps=2
        )
