"""Rotary position embedding (arXiv 2104.09864), halves rotated against each other as in Llama."""

import torch
from torch import Tensor


class RotaryEmbedding:
    """Cosines and sines of all positions, (positions, 1, head_dim / 2), in the dtype of the model."""

    def __init__(
        self, head_dim: int, theta: float, max_model_len: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        angles = torch.arange(max_model_len, dtype=torch.float64)[:, None] * theta**-exponents
        self._cos = angles.cos().to(device, dtype)[:, None]
        self._sin = angles.sin().to(device, dtype)[:, None]

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Rotate (tokens, heads, head_dim) by the positions of its tokens."""
        cos, sin = self._cos[positions], self._sin[positions]
        left, right = heads.chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
