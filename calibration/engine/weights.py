"""Random weights of a decoder, of a size that keeps activations near 1.

The same seed, dtype and kind of device give the same weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from calibration.engine.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; matrices are (outputs, inputs). Projections of one input lie in one matrix, as in vLLM."""

    attention_norm: Tensor
    qkv: Tensor
    """Queries of all heads, then keys, then values."""
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole decoder; where embeddings are tied `lm_head` is `embedding`."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    lm_head: Tensor


def random_weights(config: ModelConfig, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Weights:
    """Weights drawn from normal distributions, norms around 1."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, mean: float = 0.0, stddev: float) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device).normal_(mean, stddev, generator=generator)

    def linear(outputs: int, inputs: int) -> Tensor:
        return normal(outputs, inputs, stddev=inputs**-0.5)

    def norm() -> Tensor:
        return normal(config.hidden_size, mean=1.0, stddev=0.1)

    def layer() -> LayerWeights:
        hidden, width = config.hidden_size, config.num_heads * config.head_dim
        return LayerWeights(
            attention_norm=norm(),
            qkv=linear((config.num_heads + 2 * config.num_kv_heads) * config.head_dim, hidden),
            output=linear(hidden, width),
            mlp_norm=norm(),
            gate_up=linear(2 * config.intermediate_size, hidden),
            down=linear(hidden, config.intermediate_size),
        )

    embedding = normal(config.vocab_size, config.hidden_size, stddev=1.0)
    return Weights(
        embedding=embedding,
        layers=tuple(layer() for _ in range(config.num_layers)),
        norm=norm(),
        lm_head=embedding if config.tie_word_embeddings else linear(config.vocab_size, config.hidden_size),
    )
