"""RMSNorm with the residual added first: one function, two back ends."""

import torch.nn.functional as F
from torch import Tensor


def add_rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, backend: str) -> tuple[Tensor, Tensor]:
    """`(norm(x + residual) * weight, x + residual)` over the last dimension; the mean square is taken in fp32."""
    if backend == "triton":
        from calibration.engine.kernels.rms_norm import add_rms_norm as kernel

        return kernel(x, residual, weight, eps)
    total = x if residual is None else x + residual
    return F.rms_norm(total, weight.shape, weight, eps), total
