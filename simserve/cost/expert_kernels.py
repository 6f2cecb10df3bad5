"""Kernels for the experts of a layer of which a card's profile states rates, where none was measured for the model.

All experts of a layer are padded, read and multiplied by one of them. What it takes follows from the bytes of the
experts that some token chose, the FLOPs of their rows in whole blocks, and a floor:

    floor + ((bytes / bandwidth)^p + (FLOPs / rate)^p)^(1/p) + activations

Reading and multiplying overlap in part (p = 2) or take turns (p = 1). What lies between the two GEMMs and behind them
passes through memory as that of any elementwise kernel.
"""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np

from simserve.cost.curve import FloatArray
from simserve.cost.device import Device
from simserve.cost.gemm_table import ExpertsShape
from simserve.cost.operators import Routing, Work
from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec


class ExpertKernel(NamedTuple):
    """A kernel on one card. Rates in B/s and FLOP/s, floor in seconds. `hidden_multiple` and `inter_multiple`: what
    hidden size and width of an expert are padded to. `blocks`: rows that a thread block may work on.
    """

    floor: float
    bandwidth: float
    flops: float
    hidden_multiple: int
    inter_multiple: int
    blocks: tuple[int, ...]
    overlap: float
    """p above."""
    inter_passes: int
    """How often the width of an expert is written or read between its GEMMs, for each row."""

    def padded_hidden(self, hidden: float) -> int:
        """Elements of a token that it works on."""
        return _multiple(hidden, self.hidden_multiple)

    def padded_inter(self, inter: float) -> int:
        """Width of one expert on one GPU that it works on."""
        return _multiple(inter, self.inter_multiple)


_FULL_BLOCK = 0.9
"""vLLM takes the first block size that the mean rows of an expert fill to less than this (fused_marlin_moe.py)."""

_KERNELS: Mapping[str, tuple[int, int, tuple[int, ...], float, int]] = {
    "marlin": (256, 128, (8, 16, 32, 48, 64), 2.0, 6),
    "flashinfer_trtllm_afp8": (256, 256, (8, 16, 32, 64, 128), 1.0, 2),
}
"""What is the same on all cards: multiples and blocks as in vLLM 0.13 (quantization/mxfp4.py, fused_marlin_moe.py) and
FlashInfer; p as the measured kernels have it. Behind Marlin's first GEMM another kernel multiplies gate and up."""


def expert_kernel(backend: str, floor: float, bandwidth: float, flops: float) -> ExpertKernel:
    """The kernel of a backend, by vLLM's name, on a card of these rates.

    Raises:
        KeyError: its padding and blocks are not known.
    """
    return ExpertKernel(floor, bandwidth, flops, *_KERNELS[backend])


class PaddedExperts(NamedTuple):
    """All experts of a layer on one GPU by a kernel. `element_bytes`: of one weight with its scales."""

    name: str
    shape: ExpertsShape
    routing: Routing
    kernel: ExpertKernel
    element_bytes: float
    activation_bytes: float
    group: str = "experts"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The experts over each number of tokens."""
        kernel, routing = self.kernel, self.routing
        rows = routing.busiest(rows)
        width = kernel.padded_inter(self.shape.inter / self.shape.ranks)
        weights = 3.0 * kernel.padded_hidden(self.shape.hidden) * width
        read = routing.touched(rows) * weights * self.element_bytes
        flops = 2.0 * self.padded_rows(rows) * weights
        memory, compute = read / kernel.bandwidth, flops / kernel.flops
        both = (memory**kernel.overlap + compute**kernel.overlap) ** (1.0 / kernel.overlap)
        each = kernel.inter_passes * width + 2 * kernel.padded_hidden(self.shape.hidden)
        passed = routing.routed(rows) * each * self.activation_bytes
        times: dict[str, FloatArray | float] = {"memory": memory, "compute": compute, "floor": kernel.floor}
        return Work(read + device.beyond_l2(passed), flops, times, kernel.floor + both + device.elementwise(passed))

    def padded_rows(self, rows: FloatArray) -> FloatArray:
        """Rows of all blocks: each touched expert has one at least, and half of its last one is empty on average."""
        blocks = np.array(self.kernel.blocks, dtype=float)
        fits = self.routing.rows_of_expert(rows)[:, None] < _FULL_BLOCK * blocks
        block = np.where(fits.any(axis=1), blocks[fits.argmax(axis=1)], blocks[-1])
        touched = self.routing.touched(rows)
        padded: FloatArray = np.maximum(touched * block, self.routing.routed(rows) + touched * block / 2.0)
        return padded


def _multiple(size: float, of: int) -> int:
    return of * ceil(size / of)


def chosen_kernel(model: ModelSpec, gpu: GpuSpec, backend: str) -> ExpertKernel | None:
    """The kernel of a backend other than the GPU's own, which is the one that its table holds.

    Raises:
        ValueError: the backend is not for such experts, or was not measured on this GPU.
    """
    if backend == "auto":
        return None
    if not model.is_moe or model.expert_dtype != "mxfp4":
        raise ValueError(f"engine.moe_backend: {backend} chooses kernels for experts in mxfp4, which it has none of")
    if backend == gpu.mxfp4_backend:
        return None
    spec = gpu.expert_kernels.get(backend)
    if spec is None:
        known = ", ".join(["auto", gpu.mxfp4_backend, *gpu.expert_kernels])
        raise ValueError(f"engine.moe_backend: {backend} was not measured on this GPU, take one of {known}")
    return expert_kernel(backend, spec.floor, spec.bandwidth, spec.flops)
