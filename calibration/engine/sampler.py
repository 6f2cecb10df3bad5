"""From hidden states to tokens: the likeliest one, always."""

import torch.nn.functional as F
from torch import Tensor


def greedy(hidden: Tensor, lm_head: Tensor) -> Tensor:
    """Token of the largest logit for each row of `hidden`, (rows, hidden_size)."""
    return F.linear(hidden, lm_head).argmax(dim=-1)
