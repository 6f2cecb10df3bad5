"""Libraries whose GEMMs an engine may call in place of those that were measured."""

from collections.abc import Mapping
from typing import NamedTuple

from simserve.cost.curve import FloatArray, LogLogCurve

_CUTLASS_OVER_CUTEDSL = LogLogCurve(
    (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    (1.05, 1.13, 1.08, 1.23, 1.21, 1.27, 1.29, 1.19, 1.10, 1.09, 1.0),
)
"""Time of FlashInfer's CUTLASS kernel for NVFP4 over that of its CuTe DSL kernel, which the tables of B200 hold (vLLM
0.25), against rows: means of the shapes published in vLLM's pull request 42235 (May 2026, B200 and B300)."""


class LinearBackend(NamedTuple):
    """A library's GEMMs. Those that compute in format `compute` take `slowdown` times as long as the measured ones, by
    their rows; those in other formats as long.
    """

    name: str
    compute: str
    slowdown: LogLogCurve

    def slower(self, compute: str, rows: FloatArray) -> FloatArray | float:
        """Time of a GEMM over that of the measured kernel for each number of rows."""
        return self.slowdown(rows) if compute == self.compute else 1.0


BACKENDS: Mapping[str, LinearBackend | None] = {
    "auto": None,
    "flashinfer_cutlass": LinearBackend("flashinfer_cutlass", "nvfp4", _CUTLASS_OVER_CUTEDSL),
}
"""`engine.linear_backend` -> the library; None is the kernels that were measured."""
