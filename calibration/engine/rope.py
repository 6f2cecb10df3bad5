"""Rotary position embedding (arXiv 2104.09864), halves rotated against each other as in Llama, before the cache."""

import torch
from torch import Tensor

from calibration.engine.device_batch import DeviceBatch
from calibration.engine.kv_cache import KVCache


class RotaryEmbedding:
    """Cosines and sines of all positions, (positions, 1, head_dim / 2), in the dtype of the model."""

    def __init__(
        self, head_dim: int, theta: float, max_model_len: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        angles = torch.arange(max_model_len, dtype=torch.float64)[:, None] * theta**-exponents
        self.cos = angles.cos().to(device, dtype)[:, None]
        self.sin = angles.sin().to(device, dtype)[:, None]

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Rotate (tokens, heads, head_dim) by the positions of its tokens."""
        cos, sin = self.cos[positions], self.sin[positions]
        left, right = heads.chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def rotate_and_store(
    heads: Tensor, batch: DeviceBatch, rotary: RotaryEmbedding, cache: KVCache, layer: int, *, backend: str
) -> Tensor:
    """Write the keys, rotated, and the values of a batch to one layer of the cache; returns the queries, rotated.

    `heads` is (tokens, heads + 2 * kv_heads, head_dim), contiguous: queries, keys, values. Queries are without the
    last two parts.
    """
    if backend == "triton":
        from calibration.engine.kernels.rotary import rotate_and_store as kernel

        keys, values = cache.keys[layer], cache.values[layer]
        return kernel(heads, batch.positions, batch.slots, rotary.cos, rotary.sin, keys, values)
    num_kv_heads = cache.keys.shape[3]
    num_rotated = heads.shape[1] - num_kv_heads
    rotated = rotary.rotate(heads[:, :num_rotated], batch.positions)
    cache.write(layer, rotated[:, num_rotated - num_kv_heads :], heads[:, num_rotated:], batch.slots)
    return rotated[:, : num_rotated - num_kv_heads]
