"""Rotation of queries and keys, and the write of keys and values to the paged cache, in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from calibration.engine.kernels.launch import rotary_launch


@triton.jit
def rotate_and_store_token(
    query,
    keys,
    values,
    heads,
    cos,
    sin,
    positions,
    slots,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_ROTATED: tl.constexpr,
    PADDED_KV: tl.constexpr,
):
    """Program (token). `heads` are a token's queries, then keys, then values; the halves of a head rotate together."""
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    position = tl.load(positions + token)
    lanes = tl.arange(0, HALF)
    c = tl.load(cos + position * HALF + lanes).to(tl.float32)[None, :]
    s = tl.load(sin + position * HALF + lanes).to(tl.float32)[None, :]

    head = tl.arange(0, PADDED_ROTATED)[:, None]
    source = heads + (token * (NUM_HEADS + 2 * NUM_KV_HEADS) + head) * HEAD_DIM + lanes[None, :]
    is_query = head < NUM_HEADS
    is_key = (head >= NUM_HEADS) & (head < NUM_HEADS + NUM_KV_HEADS)
    left = tl.load(source, mask=is_query | is_key, other=0.0).to(tl.float32)
    right = tl.load(source + HALF, mask=is_query | is_key, other=0.0).to(tl.float32)
    new_left = (left * c - right * s).to(keys.dtype.element_ty)
    new_right = (right * c + left * s).to(keys.dtype.element_ty)
    to_query = query + (token * NUM_HEADS + head) * HEAD_DIM + lanes[None, :]
    tl.store(to_query, new_left, mask=is_query)
    tl.store(to_query + HALF, new_right, mask=is_query)
    to_key = keys + (slot * NUM_KV_HEADS + head - NUM_HEADS) * HEAD_DIM + lanes[None, :]
    tl.store(to_key, new_left, mask=is_key)
    tl.store(to_key + HALF, new_right, mask=is_key)

    dims = tl.arange(0, HEAD_DIM)[None, :]
    kv_head = tl.arange(0, PADDED_KV)[:, None]
    is_value = kv_head < NUM_KV_HEADS
    first = token * (NUM_HEADS + 2 * NUM_KV_HEADS) + NUM_HEADS + NUM_KV_HEADS
    value = tl.load(heads + (first + kv_head) * HEAD_DIM + dims, mask=is_value, other=0.0)
    tl.store(values + (slot * NUM_KV_HEADS + kv_head) * HEAD_DIM + dims, value, mask=is_value)


def rotate_and_store(
    heads: Tensor, positions: Tensor, slots: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """As `calibration.engine.rope.rotate_and_store`; returns the queries, contiguous."""
    num_tokens, num_all, head_dim = heads.shape
    num_kv_heads = keys.shape[2]
    num_heads = num_all - 2 * num_kv_heads
    query = heads.new_empty((num_tokens, num_heads, head_dim))
    launch = rotary_launch(num_heads + num_kv_heads, head_dim)
    rotate_and_store_token[(num_tokens,)](
        query,
        keys,
        values,
        heads,
        cos,
        sin,
        positions,
        slots,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        PADDED_ROTATED=triton.next_power_of_2(num_heads + num_kv_heads),
        PADDED_KV=triton.next_power_of_2(num_kv_heads),
        num_warps=launch.num_warps,
    )
    return query
