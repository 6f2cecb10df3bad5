"""The GPU as the cost model sees it: rates, efficiencies and floors, all in SI numbers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from simserve.cost.curve import FloatArray, LogLogCurve, mfu_curve
from simserve.cost.gemm_share import gemm_share
from simserve.cost.tables import Tables
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.hardware import GpuSpec

_DECODE_TILE = 64
_FLASH_ATTENTION_2 = frozenset({"sm_80", "sm_86", "sm_89", "sm_120"})
"""Architectures where vLLM runs FlashAttention 2. A batch with chunks there is one kernel, in which each query head of
a decode works on a tile of so many queries, all but one of them idle. Measured with Llama-3.1-8B in vLLM 0.19 (4,480
batches on RTX PRO 6000, 3,960 on RTX 4090; LLMServingSim, MIT)."""

_WIDENING_MFU = {"sm_80": 0.45, "sm_86": 0.7, "sm_89": 0.7, "sm_120": 0.7}
"""Share of the 16-bit peak that a GEMM reaches whose weights are widened first (Marlin), by architecture. A100: 141
TFLOP/s from 64 rows on (bench.py of Marlin, in vLLM's pull request 2497). L40S 0.72 and RTX PRO 6000 0.66: experts in
mxfp4 and int4 over many rows (aisimulate 0.13, Apache-2.0, vLLM 0.24). sm_86 is a guess: not measured, and nearer to
sm_89 than to the A100 in what its tensor cores do beside its other lanes."""

_WIDENED_FROM = 64
"""Rows from which on that share was measured. Fewer rows are bound by reading the narrow weights, so that it must not
be asked of them; that they reach the share of the roofline that 16-bit weights reach is a guess."""

_L2_OF_ACTIVATIONS = 1 / 3
"""Share of L2 in which activations wait from one kernel to the next; weights pass through the rest. Elementwise kernels
of 22 to 176 MB on RTX PRO 6000 (128 MiB of L2) and RTX 4090 (72 MiB) take within 12 % of the time so given (vLLM 0.19,
LLMServingSim, MIT)."""

_SAME_KERNELS = {
    "fp32": "bf16",
    "fp16": "bf16",
    "int8": "fp8",
    "int4": "fp8",
    "mxfp4": "fp8",
    "nvfp4": "fp8",
    "fp8": "bf16",
}
"""Format whose measured efficiency stands in for one that was not measured."""


def measured_format(dtype: str, measured: Iterable[str]) -> str:
    """The format of `measured` whose efficiency holds for `dtype`.

    Raises:
        ValueError: none of them stands in for it.
    """
    known = set(measured)
    wanted = dtype
    while wanted not in known:
        if wanted not in _SAME_KERNELS:
            raise ValueError(f"no efficiency for {dtype}; measured: {', '.join(sorted(known)) or 'none'}")
        wanted = _SAME_KERNELS[wanted]
    return wanted


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. Rates in B/s and FLOP/s, floors in seconds, formats by name.

    `gemm_bandwidth` is by weight format, `peak_flops` by compute format, `gemm_mfu` by both. Activations that fit into
    `l2_bytes` do not travel to HBM.
    """

    gemm_bandwidth: Mapping[str, float]
    elementwise_bandwidth: float
    attention_bandwidth: float
    peak_flops: Mapping[str, float]
    gemm_mfu: Mapping[tuple[str, str], LogLogCurve]
    attention_mfu: LogLogCurve
    l2_bytes: float
    gemm_floor: float
    kernel_floor: float
    decode_floor: float
    prefill_floor: float
    decode_tile: int = 0
    """Queries of the tile that a decode takes up beside chunks; 0 where decodes run apart from them."""
    decode_per_head: float = 0.0
    sampler_floor: float = 0.0
    l2_bandwidth: float = math.inf
    num_sms: int = 192
    widening_mfu: float = 1.0
    """Most that a GEMM over many rows reaches of the peak whose weights are widened first."""
    cold: bool = False
    """Decode attention finds no KV in L2, as in a model: all other layers pass between two reads of it."""
    tables: Tables | None = None
    """Measured times, which take the place of all efficiencies where they hold an operator."""

    @classmethod
    def of(cls, gpu: GpuSpec, tables: Tables | None = None, *, cold: bool = False) -> "Device":
        """The GPU of a profile, `cold` or not. A format without measurements of its own takes those of the nearest."""
        share = gpu.efficiency
        return cls(
            gemm_bandwidth={
                dtype: gpu.hbm_bandwidth * share.hbm_gemm[measured_format(dtype, share.hbm_gemm)]
                for dtype in ("bf16", *_SAME_KERNELS)
            },
            elementwise_bandwidth=gpu.hbm_bandwidth * share.hbm_elementwise,
            attention_bandwidth=gpu.hbm_bandwidth * share.hbm_decode_attention,
            peak_flops=gpu.peak_flops,
            gemm_mfu={
                (weights, compute): gemm_share(gpu, weights, compute, measured_format(compute, share.gemm_mfu))
                for weights in ("bf16", *_SAME_KERNELS)
                for compute in gpu.peak_flops
            },
            attention_mfu=mfu_curve(share.prefill_attention_mfu),
            l2_bytes=gpu.l2_bytes,
            gemm_floor=share.gemm_floor,
            kernel_floor=share.kernel_floor,
            decode_floor=share.decode_attention_floor,
            prefill_floor=share.prefill_attention_floor,
            decode_tile=_DECODE_TILE if gpu.architecture in _FLASH_ATTENTION_2 else 0,
            decode_per_head=share.decode_attention_per_head,
            sampler_floor=share.sampler_floor,
            l2_bandwidth=gpu.l2_bandwidth or math.inf,
            num_sms=gpu.num_sms,
            widening_mfu=_WIDENING_MFU.get(gpu.architecture, 1.0),
            cold=cold,
            tables=tables,
        )

    def share_of_peak(self, weights: str, compute: str, rows: FloatArray) -> FloatArray:
        """Share of the peak of `compute` that a GEMM over so many rows reaches on such weights, were they read in no
        time.
        """
        share = self.gemm_mfu[weights, compute](rows)
        if bytes_per_element(weights) < bytes_per_element(compute):
            share = np.where(rows < _WIDENED_FROM, share, np.minimum(share, self.widening_mfu))
        return share

    def beyond_l2(self, moved: FloatArray) -> FloatArray:
        """Bytes of those that an elementwise kernel moves that travel to HBM."""
        beyond: FloatArray = np.maximum(0.0, moved - _L2_OF_ACTIVATIONS * self.l2_bytes)
        return beyond

    def elementwise(self, moved: FloatArray) -> FloatArray:
        """Seconds in which a kernel that computes next to nothing moves so many bytes: through L2, and through HBM what
        does not stay there.
        """
        hbm = self.beyond_l2(moved) / self.elementwise_bandwidth
        seconds: FloatArray = np.maximum(moved / self.l2_bandwidth, hbm)
        return seconds

    def spilled(self, activations: FloatArray) -> FloatArray:
        """Bytes of activations that travel to HBM because L2 is full."""
        beyond: FloatArray = np.maximum(0.0, activations - self.l2_bytes)
        return beyond
