"""A batch on the device that runs it: copied there in two transfers, or refilled in place for a captured graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.engine.batch import Batch

ALIGNMENT = 16
"""Arrays copied as one start at multiples of so many elements: kernels are compiled for aligned pointers."""


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """The arrays of a `Batch` as views into `longs` and `ints`; row `i` samples from token `last_tokens[i]`."""

    num_decodes: int
    chunks: tuple[tuple[int, int], ...]
    contexts: Sequence[int] | None
    """Context lengths on the host; None in a captured graph, where they change from replay to replay."""
    longs: Tensor
    ints: Tensor
    tokens: Tensor
    positions: Tensor
    slots: Tensor
    last_tokens: Tensor
    query_starts: Tensor
    context_lens: Tensor
    block_table: Tensor
    row_blocks: list[Tensor] = field(default_factory=list)
    masks: dict[int, Tensor] = field(default_factory=dict)
    """Block numbers of each row and causal masks by row, which the first layer makes for the others."""

    def refill(self, batch: Batch) -> None:
        """Replace the content by that of another batch of the same shape, in the same memory."""
        self.longs.copy_(_packed(_longs(batch), self.longs.device), non_blocking=True)
        self.ints.copy_(_packed(_ints(batch), self.ints.device), non_blocking=True)


def to_device(batch: Batch, device: torch.device, lengths_vary: bool = False) -> DeviceBatch:
    """Copy a batch; with `lengths_vary` nothing will depend on its contexts on the host, as a captured graph needs."""
    long_arrays, int_arrays = _longs(batch), _ints(batch)
    longs = _packed(long_arrays, device).to(device, non_blocking=True)
    ints = _packed(int_arrays, device).to(device, non_blocking=True)
    tokens, positions, slots, last_tokens = _views(longs, long_arrays)
    query_starts, context_lens, block_table = _views(ints, int_arrays)
    return DeviceBatch(
        num_decodes=batch.num_decodes,
        chunks=batch.chunks,
        contexts=None if lengths_vary else batch.context_lens.tolist(),
        longs=longs,
        ints=ints,
        tokens=tokens,
        positions=positions,
        slots=slots,
        last_tokens=last_tokens,
        query_starts=query_starts,
        context_lens=context_lens,
        block_table=block_table.view(batch.block_table.shape),
    )


def _longs(batch: Batch) -> list[NDArray[np.int64]]:
    return [batch.tokens, batch.positions, batch.slots, batch.query_starts[1:].astype(np.int64) - 1]


def _ints(batch: Batch) -> list[NDArray[np.int32]]:
    return [batch.query_starts, batch.context_lens, batch.block_table.ravel()]


def _starts(arrays: Sequence[NDArray[np.integer]]) -> list[int]:
    """Where each array begins in the packed one, and where the last one ends."""
    starts = [0]
    for array in arrays:
        starts.append(starts[-1] + -(-len(array) // ALIGNMENT) * ALIGNMENT)
    return starts


def _packed(arrays: Sequence[NDArray[np.integer]], device: torch.device) -> Tensor:
    starts = _starts(arrays)
    packed = np.zeros(starts[-1], dtype=arrays[0].dtype)
    for start, array in zip(starts, arrays, strict=False):
        packed[start : start + len(array)] = array
    tensor = torch.from_numpy(packed)
    return tensor.pin_memory() if device.type == "cuda" else tensor


def _views(packed: Tensor, arrays: Sequence[NDArray[np.integer]]) -> list[Tensor]:
    return [packed[start : start + len(array)] for start, array in zip(_starts(arrays), arrays, strict=False)]
