"""RMSNorm with the residual added first, in one pass over a row (arXiv 1910.07467)."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from calibration.engine.kernels.launch import norm_launch


@triton.jit
def add_rms_norm_rows(
    out,
    added,
    x,
    residual,
    weight,
    hidden_size,
    eps,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
):
    """Program (row). The sum is rounded to the model's dtype before it is squared, as the other back end does."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < hidden_size
    at = row * hidden_size + column
    value = tl.load(x + at, mask=inside, other=0.0)
    if ADD:
        value = (value.to(tl.float32) + tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)).to(value.dtype)
        tl.store(added + at, value, mask=inside)
    value = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / hidden_size + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (value * scale * gain).to(out.dtype.element_ty), mask=inside)


def add_rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """As `calibration.engine.norm.add_rms_norm`; `x` is (rows, hidden_size), contiguous."""
    num_rows, hidden_size = x.shape
    launch = norm_launch(hidden_size)
    out = torch.empty_like(x)
    total = x if residual is None else torch.empty_like(x)
    add_rms_norm_rows[(num_rows,)](
        out,
        total,
        x,
        x if residual is None else residual,
        weight,
        hidden_size,
        eps,
        BLOCK=triton.next_power_of_2(hidden_size),
        ADD=residual is not None,
        num_warps=launch.num_warps,
    )
    return out, total
