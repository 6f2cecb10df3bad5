"""The GPU as the cost model sees it: rates, efficiencies and floors, all in SI numbers."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log

from simserve.spec.hardware import GpuSpec


@dataclass(frozen=True, slots=True)
class MfuCurve:
    """Share of the peak FLOP/s that an operator reaches, against its size (rows of a GEMM, length of a prompt).

    Straight lines in log-log between the points, flat outside. Time of a fixed amount of work per row goes as
    size / mfu(size); where measured points would make it fall with the size, the mfu is lowered to keep it level.
    """

    sizes: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def through(cls, points: Mapping[int, float]) -> "MfuCurve":
        """Curve through points size -> mfu.

        Raises:
            ValueError: no points, or a size or mfu that is not positive.
        """
        if not points or any(size <= 0 or mfu <= 0 for size, mfu in points.items()):
            raise ValueError(f"an mfu curve needs points of positive size and mfu, got {points}")
        sizes: list[float] = []
        values: list[float] = []
        for size, mfu in sorted(points.items()):
            values.append(min(mfu, values[-1] * size / sizes[-1]) if sizes else mfu)
            sizes.append(size)
        return cls(tuple(sizes), tuple(values))

    def __call__(self, size: float) -> float:
        """Share of the peak at `size`."""
        i = bisect_left(self.sizes, size)
        if i == 0:
            return self.values[0]
        if i == len(self.sizes):
            return self.values[-1]
        x0, x1, y0, y1 = self.sizes[i - 1], self.sizes[i], self.values[i - 1], self.values[i]
        return y0 * exp(log(y1 / y0) * log(size / x0) / log(x1 / x0))


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

    `gemm_bandwidth` is by weight format, `peak_flops` and `gemm_mfu` by compute format. Activations that fit into
    `l2_bytes` do not travel to HBM.
    """

    gemm_bandwidth: Mapping[str, float]
    elementwise_bandwidth: float
    attention_bandwidth: float
    peak_flops: Mapping[str, float]
    gemm_mfu: Mapping[str, MfuCurve]
    attention_mfu: MfuCurve
    l2_bytes: float
    gemm_floor: float
    kernel_floor: float
    decode_floor: float
    prefill_floor: float

    @classmethod
    def of(cls, gpu: GpuSpec) -> "Device":
        """The GPU of a profile. A format without measurements of its own takes those of the nearest one."""
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
                dtype: MfuCurve.through(share.gemm_mfu[measured_format(dtype, share.gemm_mfu)])
                for dtype in gpu.peak_flops
            },
            attention_mfu=MfuCurve.through(share.prefill_attention_mfu),
            l2_bytes=gpu.l2_bytes,
            gemm_floor=share.gemm_floor,
            kernel_floor=share.kernel_floor,
            decode_floor=share.decode_attention_floor,
            prefill_floor=share.prefill_attention_floor,
        )

    def spilled(self, activations: float) -> float:
        """Bytes of activations that travel to HBM because L2 is full."""
        return max(0.0, activations - self.l2_bytes)
