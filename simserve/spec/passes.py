"""Passes of vLLM's compiler that put several operators into one kernel."""

from collections.abc import Mapping
from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import PositiveNumber
from simserve.spec.strict import Strict

MIB = 2**20

_LARGEST_FUSED: Mapping[str, Mapping[int, float]] = {
    "sm_90": {2: 64, 4: 2, 8: 0.5},
    "sm_100": {2: 64, 4: 32, 8: 1},
}
"""Architecture -> GPUs -> MiB of the largest message that is summed by the fused kernel (vLLM 0.16,
compilation/passes/fusion/allreduce_rms_fusion.py, FI_ALLREDUCE_FUSION_MAX_SIZE_MB)."""


class PassSpec(Strict):
    """vLLM's `compilation_config.pass_config`, under the names of vLLM 0.32."""

    fuse_allreduce_rms: bool = False
    """All-reduce, residual, norm and the quantisation of its result are one kernel of FlashInfer, up to a size of the
    message (`enable_fi_allreduce_fusion` in vLLM 0.11).
    """
    fi_allreduce_fusion_max_size_mb: PositiveNumber | None = None
    """That size in MiB; null: vLLM's for the GPU and the number of ranks."""
    fuse_attn_quant: bool = False
    """Attention writes its output in the format of the GEMM that follows (`enable_attn_fusion` in vLLM 0.11)."""

    @model_validator(mode="after")
    def _a_size_needs_a_kernel(self) -> Self:
        key = "fi_allreduce_fusion_max_size_mb"
        if self.fi_allreduce_fusion_max_size_mb is not None and not self.fuse_allreduce_rms:
            raise PydanticCustomError("exclusive", "would be ignored without fuse_allreduce_rms: true", {"key": key})
        return self

    def largest_fused(self, architecture: str, ranks: int) -> float:
        """Bytes of the largest message that the fused kernel sums; 0 where there is none."""
        if not self.fuse_allreduce_rms:
            return 0.0
        size = self.fi_allreduce_fusion_max_size_mb
        if size is None:
            size = _LARGEST_FUSED.get(architecture, {}).get(ranks, 0.0)
        return size * MIB
