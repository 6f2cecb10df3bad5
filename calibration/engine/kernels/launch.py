"""Launch configurations: how each kernel is cut into programs, for each kind of device. No kernel tunes itself.

Tiles are what one program holds at a time; they are chosen so that a program's registers do not spill and its shared
memory fits the device, which a test asserts for every entry.
"""

import os
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch

INTERPRETED: Final = os.environ.get("TRITON_INTERPRET") == "1"

ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100", "gfx942")
"""Ampere, Hopper, data-centre Blackwell, CDNA 3; a device between two of them is treated as the older one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Options of the compiler, and tiles: query tokens and KV tokens that a program takes at a time (0: not tiled)."""

    num_warps: int
    num_stages: int
    tile_q: int = 0
    tile_kv: int = 0


PREFILL: Final = {
    # bytes of an element: architecture -> head_dim -> launch
    2: {
        "sm_80": {64: Launch(4, 3, 64, 64), 128: Launch(8, 2, 128, 64)},
        "sm_90": {64: Launch(4, 3, 128, 64), 128: Launch(8, 3, 128, 64)},
        "sm_100": {64: Launch(4, 3, 128, 64), 128: Launch(8, 3, 128, 64)},
        "gfx942": {64: Launch(4, 2, 64, 64), 128: Launch(4, 2, 64, 64)},
    },
    4: {name: {64: Launch(8, 1, 32, 32), 128: Launch(4, 1, 16, 32)} for name in ARCHITECTURES},
}

DECODE: Final = {
    2: {
        "sm_80": {64: Launch(4, 3, 0, 64), 128: Launch(4, 3, 0, 64)},
        "sm_90": {64: Launch(4, 3, 0, 128), 128: Launch(4, 3, 0, 64)},
        "sm_100": {64: Launch(4, 3, 0, 128), 128: Launch(4, 3, 0, 64)},
        "gfx942": {64: Launch(4, 2, 0, 64), 128: Launch(4, 2, 0, 64)},
    },
    4: {name: {64: Launch(4, 1, 0, 32), 128: Launch(4, 1, 0, 32)} for name in ARCHITECTURES},
}


def prefill_launch(head_dim: int, element_size: int, architecture: str) -> Launch:
    """How prefill attention is launched."""
    return _launch(PREFILL, head_dim, element_size, architecture)


def decode_launch(head_dim: int, element_size: int, architecture: str) -> Launch:
    """How decode attention is launched."""
    return _launch(DECODE, head_dim, element_size, architecture)


def rotary_launch(num_rotated: int, head_dim: int) -> Launch:
    """All heads of a token are one program."""
    return Launch(_num_warps(num_rotated * head_dim), num_stages=1)


def norm_launch(hidden_size: int) -> Launch:
    """A row of RMSNorm is one program."""
    return Launch(_num_warps(hidden_size), num_stages=1)


def _num_warps(num_elements: int) -> int:
    """A power of 2, up to 16, with at least 16 elements for each thread where there are as many."""
    return min(16, 1 << max(0, (num_elements // 512).bit_length() - 1))


MAX_SPLITS: Final = 32
SHORTEST_SPLIT: Final = 256
"""KV tokens below which a share of its own costs more than it brings."""


def num_splits(num_programs: int, longest: int, device: torch.device) -> int:
    """Shares of a row's KV, a power of 2, so that `num_programs` become about two for each processor of the device.

    `longest` bounds the contexts of all rows, which are not known when a graph is captured.
    """
    splits, wanted = 1, 2 * num_processors(device)
    while splits < MAX_SPLITS and num_programs * splits < wanted and longest >= 2 * splits * SHORTEST_SPLIT:
        splits *= 2
    return splits


@cache
def num_processors(device: torch.device) -> int:
    """Streaming multiprocessors or compute units of a device."""
    return 8 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count


def _launch(
    table: dict[int, dict[str, dict[int, Launch]]], head_dim: int, element_size: int, architecture: str
) -> Launch:
    heads = table[element_size][architecture]
    if head_dim not in heads:
        raise ValueError(
            f"no launch configuration for head_dim {head_dim}, only for {sorted(heads)}: use backend torch"
        )
    return heads[head_dim]


@cache
def architecture_of(device: torch.device) -> str:
    """The entry of `ARCHITECTURES` that a device is launched as; the interpreter's is the first.

    Raises:
        ValueError: the device is older than any of them.
    """
    if INTERPRETED:
        return ARCHITECTURES[0]
    if torch.version.hip:
        return "gfx942"
    major, _ = torch.cuda.get_device_capability(device)
    known = [name for name in ARCHITECTURES[:3] if int(name.removeprefix("sm_")) <= 10 * major]
    if not known:
        raise ValueError(
            f"the Triton kernels need compute capability 8.0, this device has {major}.x: use backend torch"
        )
    return known[-1]
