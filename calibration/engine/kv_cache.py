"""The paged KV cache: keys and values of all layers, in blocks that block tables point at."""

import torch
from torch import Tensor

from calibration.engine.config import ModelConfig


class KVCache:
    """`keys` and `values` are (layers, blocks, block_size, kv_heads, head_dim); block 0 takes what pads a batch.

    Filled with random numbers: memory is touched before anything is timed, and what a synthetic batch reads is as
    irregular as real text, which matters to a GPU's clock.
    """

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        generator = torch.Generator(device).manual_seed(0)
        self.keys, self.values = (torch.empty(shape, dtype=dtype, device=device) for _ in range(2))
        for layer in (*self.keys, *self.values):
            layer[0].normal_(generator=generator)
            layer[1:] = layer[0]

    def write(self, layer: int, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """Store keys and values, (tokens, kv_heads, head_dim), at `slots`: block number * block size + offset."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, slots, values)
