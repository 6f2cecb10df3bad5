"""A plain decoder without cache, blocks or batches: the judge of the engine.

Written apart from it: one text at a time, all positions at once, rotation as multiplication of complex numbers,
attention as a softmax over every pair of tokens.
"""

import torch
from torch import Tensor

from calibration.engine.config import ModelConfig
from calibration.engine.weights import LayerWeights, Weights


def logits(config: ModelConfig, weights: Weights, text: list[int]) -> Tensor:
    """Logits after each token of a text, (tokens, vocabulary)."""
    x = weights.embedding[torch.tensor(text, device=weights.embedding.device)]
    for layer in weights.layers:
        x = x + attend(config, layer, rms_norm(x, layer.attention_norm, config.rms_norm_eps))
        h = rms_norm(x, layer.mlp_norm, config.rms_norm_eps) @ layer.gate_up.T
        gate, up = h[:, : config.intermediate_size], h[:, config.intermediate_size :]
        x = x + (gate / (1 + (-gate).exp()) * up) @ layer.down.T
    return rms_norm(x, weights.norm, config.rms_norm_eps) @ weights.lm_head.T


def assert_greedy(config: ModelConfig, weights: Weights, text: list[int], num_prompt_tokens: int) -> None:
    """Every token after the prompt is the likeliest one given all before it."""
    expected = logits(config, weights, text[:-1]).argmax(dim=-1)[num_prompt_tokens - 1 :].tolist()
    assert text[num_prompt_tokens:] == expected


def answer(config: ModelConfig, weights: Weights, prompt: list[int], num_tokens: int) -> list[int]:
    """The likeliest tokens after a prompt."""
    text = list(prompt)
    for _ in range(num_tokens):
        text.append(int(logits(config, weights, text)[-1].argmax()))
    return text[len(prompt) :]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def attend(config: ModelConfig, layer: LayerWeights, x: Tensor) -> Tensor:
    num_heads, num_kv_heads, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
    qkv = (x @ layer.qkv.T).reshape(len(x), num_heads + 2 * num_kv_heads, head_dim)
    q, k, v = qkv.split_with_sizes([num_heads, num_kv_heads, num_kv_heads], dim=1)
    q, k = rotate(q, config.rope_theta), rotate(k, config.rope_theta)
    hidden_pairs = torch.ones(len(x), len(x), device=x.device).triu(1).bool()
    heads = []
    for head in range(num_heads):
        shared = head * num_kv_heads // num_heads
        scores = q[:, head] @ k[:, shared].T / head_dim**0.5
        heads.append(scores.masked_fill(hidden_pairs, -torch.inf).softmax(dim=-1) @ v[:, shared])
    return torch.cat(heads, dim=-1) @ layer.output.T


def rotate(x: Tensor, theta: float) -> Tensor:
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angles = torch.arange(len(x), device=x.device)[:, None] * frequencies
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)
