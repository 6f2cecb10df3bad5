"""Zeros that a kernel for MXFP4 experts keeps between their weights: sizes are rounded up to its tiles.

gpt-oss has a hidden size and a width of 2,880, which no tile divides, so that its experts weigh up to 14 % more.
"""

from typing import NamedTuple


class Tiles(NamedTuple):
    """Sizes are multiples of: `width` of an expert on one GPU, and `hidden` size."""

    width: int
    hidden: int


_MARLIN = _TRTLLM = Tiles(128, 256)
_TRITON = Tiles(64, 1)
_ROCM = Tiles(256, 256)


def tiles(architecture: str) -> Tiles:
    """Tiles of the kernel that vLLM 0.33 picks for gpt-oss on a GPU (fused_moe/oracle/mxfp4.py,
    mxfp4_round_up_hidden_size_and_intermediate_size): Triton on Hopper, TensorRT-LLM's on data-centre Blackwell, AITER
    on AMD, Marlin where no kernel computes on MXFP4 (Ampere, Ada) or it is faster (workstation Blackwell). Other models
    with such experts take Marlin on Hopper, too, whose tiles divide the sizes of all that are known.
    """
    if architecture.startswith("gfx"):
        return _ROCM
    if architecture.startswith("sm_9"):
        return _TRITON
    return _TRTLLM if architecture.startswith("sm_10") else _MARLIN


def padded_share(hidden: int, width: int, architecture: str, ranks: int = 1) -> float:
    """Bytes of a routed expert's weights with their zeros over those without, `width` being cut over `ranks` GPUs; with
    expert parallelism an expert is whole, so `ranks` is 1.
    """
    tile = tiles(architecture)
    across = ranks * _up(-(-width // ranks), tile.width)
    return across * _up(hidden, tile.hidden) / (width * hidden)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
