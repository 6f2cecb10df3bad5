"""The decoder: from the tokens of a batch to the next token of each of its rows."""

import torch
import torch.nn.functional as F
from torch import Tensor

from calibration.engine.attention import attention
from calibration.engine.config import ModelConfig
from calibration.engine.device_batch import DeviceBatch
from calibration.engine.kv_cache import KVCache
from calibration.engine.norm import add_rms_norm
from calibration.engine.rope import RotaryEmbedding, rotate_and_store
from calibration.engine.sampler import greedy
from calibration.engine.weights import LayerWeights, Weights


class Decoder:
    """A Llama-like decoder over a paged KV cache; `backend` computes all but the matrix products and the gate."""

    def __init__(self, config: ModelConfig, weights: Weights, rotary: RotaryEmbedding, backend: str) -> None:
        self.config = config
        self.weights = weights
        self.backend = backend
        self._rotary = rotary

    @torch.inference_mode()
    def __call__(self, batch: DeviceBatch, cache: KVCache) -> Tensor:
        """Run one step: writes the KV of the batch's tokens and returns the token sampled for each row."""
        eps, backend = self.config.rms_norm_eps, self.backend
        x = F.embedding(batch.tokens, self.weights.embedding)
        residual: Tensor | None = None
        for index, layer in enumerate(self.weights.layers):
            x, residual = add_rms_norm(x, residual, layer.attention_norm, eps, backend)
            x = self._attention(x, layer, index, batch, cache)
            x, residual = add_rms_norm(x, residual, layer.mlp_norm, eps, backend)
            gate, up = F.linear(x, layer.gate_up).chunk(2, dim=-1)
            x = F.linear(F.silu(gate) * up, layer.down)
        x, _ = add_rms_norm(x, residual, self.weights.norm, eps, backend)
        return greedy(x[batch.last_tokens], self.weights.lm_head)

    def _attention(self, x: Tensor, layer: LayerWeights, index: int, batch: DeviceBatch, cache: KVCache) -> Tensor:
        heads = F.linear(x, layer.qkv).unflatten(1, (-1, self.config.head_dim))
        query = rotate_and_store(heads, batch, self._rotary, cache, index, backend=self.backend)
        out = attention(query, cache.keys[index], cache.values[index], batch, self.backend)
        return F.linear(out.flatten(1), layer.output)
