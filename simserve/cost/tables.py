"""The measured kernel times of one GPU: which tables there are, and whether they cover a model.

They lie beside the profile they were measured for, one CSV file a kind of operator, made by `simserve profiles fit`. A
profile that is based on another one and changes its bandwidth or peaks keeps the tables: what was measured is then read
as shares of the measured card's rates.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simserve.cost.attention_tables import AttentionHeads, DecodeTable, PrefillTable, nearest
from simserve.cost.curve import FloatArray
from simserve.cost.gemm_table import ExpertsShape, ExpertsTable, GemmTable, RowCurve
from simserve.cost.grid import Table, read_table, rising
from simserve.spec import resources
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.gpus import find_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec
from simserve.spec.run import AllReduceKernel

_GEMM_FORMATS = {
    ("bf16", "bf16"): "bf16",
    ("fp16", "bf16"): "bf16",
    ("fp16", "fp16"): "bf16",
    ("fp8", "fp8"): "fp8",
    ("nvfp4", "nvfp4"): "nvfp4",
}
"""(Weights, arithmetic) of a GEMM -> the measured format that it is."""

_EXPERT_FORMATS = {
    "bf16": ("bf16",),
    "fp16": ("bf16",),
    "fp8": ("fp8_block", "fp8"),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("mxfp4",),
    "fp8_block": ("fp8_block",),
}
"""Weights of experts -> measured formats, the faster kernel first."""


ALL_REDUCES: dict[AllReduceKernel, str] = {
    "flashinfer": "all_reduce",
    "symm_mem": "symm_mem_all_reduce",
    "custom": "custom_all_reduce",
}
"""Kernel -> its rows. Where only one version was measured, its kernel stands for all."""


class Rates(NamedTuple):
    """HBM bandwidth and peaks of a card, by which the times of another are scaled."""

    bandwidth: float
    peak_flops: dict[str, float]

    @classmethod
    def of(cls, gpu: GpuSpec) -> "Rates":
        """Rates of a profile."""
        return cls(gpu.hbm_bandwidth, dict(gpu.peak_flops))

    def roof(self, rows: FloatArray, dtype: str) -> FloatArray:
        """Seconds of a GEMM over so many rows for each of its weights, were it to reach bandwidth and peak."""
        roof: FloatArray = np.maximum(self.weight(dtype), 2.0 * rows * self.flop(dtype))
        return roof

    def weight(self, dtype: str) -> float:
        """Seconds in which a weight of some format is read."""
        return bytes_per_element(dtype) / self.bandwidth

    def flop(self, dtype: str) -> float:
        """Seconds of a FLOP at the peak in some format, where there is none at that of bf16."""
        return 1.0 / self.peak_flops.get(dtype, self.peak_flops["bf16"])


class Tables:
    """Tables of one `card`, read for a `gpu` that is the same or differs from it in its rates."""

    def __init__(
        self,
        folder: Path,
        card: GpuSpec,
        gpu: GpuSpec,
        *,
        same_links: bool = True,
        tuned_fp8_decode: bool = True,
    ) -> None:
        self.card = card
        self._folder = folder
        self._measured, self._own = Rates.of(card), Rates.of(gpu)
        self.same_links = same_links
        """Whether the card has the links over which collectives were measured."""
        self._decode_formats = {"fp16": "bf16"} | ({} if tuned_fp8_decode else {"fp8": "bf16"})
        self._tables = _read_folder(folder)
        self._gemms: dict[str, GemmTable] = {}
        self._curves: dict[object, RowCurve] = {}

    def missing(self, model: ModelSpec, ranks: int, computes: frozenset[str]) -> list[str]:
        """What a model needs beside its attention and was not measured, in words; `computes`: formats that the card
        computes in.
        """
        missing = []
        if model.given_weight_bytes is not None:
            missing.append("GEMMs on weights of a stated size")
        else:
            missing += [
                f"GEMMs on {dense} weights"
                for dense in model.dense_dtypes
                if not any(self._gemm_format(dense, compute) for compute in computes)
            ]
        if model.is_moe and not self.has_experts(model.expert_dtype):
            missing.append(f"experts in {model.expert_dtype}")
        if ranks > 1 and self.all_reduce(ranks) is None:
            missing.append(f"all-reduce among {ranks}")
        return missing

    def gemm(self, weights: str, compute: str, inputs: float, outputs: float) -> RowCurve | None:
        """Times of a GEMM on one GPU; None where its format was not measured."""
        name = self._gemm_format(weights, compute)
        if name is None:
            return None
        key = name, inputs, outputs
        if key not in self._curves:
            if name not in self._gemms:
                weight, flop = self._measured.weight(name), self._measured.flop(name)
                self._gemms[name] = GemmTable(self._tables["gemm"].sub(name), weight, flop)
            self._curves[key] = self._scaled(self._gemms[name].curve(inputs, outputs), name)
        return self._curves[key]

    def experts(self, weights: str, compute: str, shape: ExpertsShape) -> RowCurve | None:
        """Times of all experts of a layer on one rank; None where their format was not measured."""
        name = self._experts_format(weights)
        if name is None:
            return None
        key = name, shape
        if key not in self._curves:
            curve = ExpertsTable(self._tables["moe"].sub(name)).curve(shape, self._balance(weights, compute))
            self._curves[key] = self._scaled(curve, compute)
        return self._curves[key]

    def _balance(self, weights: str, compute: str) -> float:
        """FLOPs that the measured card computes while it reads one weight."""
        peak = self._measured.peak_flops.get(compute, self._measured.peak_flops["bf16"])
        return bytes_per_element(weights) * peak / self._measured.bandwidth

    def has_experts(self, weights: str) -> bool:
        """Whether experts with such weights were measured."""
        return self._experts_format(weights) is not None

    def has_attention(self, kv_dtype: str) -> bool:
        """Whether attention over KV in that format was measured."""
        return bool(self._attention("decode_attention", kv_dtype).rows)

    def decode(self, heads: AttentionHeads, *, cold: bool = False) -> DecodeTable | None:
        """Decode attention; None where the format of the KV cache was not measured."""
        dtype = self._decode_formats.get(heads.kv_dtype, heads.kv_dtype)
        table = self._attention("decode_attention", dtype, self._measured.bandwidth / self._own.bandwidth)
        return DecodeTable(table, heads, cold=cold) if table.rows else None

    def prefill(self, heads: AttentionHeads) -> PrefillTable | None:
        """Prefill attention; None where the format of the KV cache was not measured."""
        factor = self._measured.peak_flops["bf16"] / self._own.peak_flops["bf16"]
        table = self._attention("prefill_attention", heads.kv_dtype, factor)
        return PrefillTable.of(table, heads) if table.rows else None

    def mixed(self, heads: AttentionHeads) -> tuple[Table, AttentionHeads] | None:
        """Attention inside a model, seconds on the card by (decodes, context, chunk) and history, with the heads that
        were measured, the nearest to those asked for; None where the format of the KV cache was not measured.
        """
        table = self._attention("mixed_attention", heads.kv_dtype)
        if not table.rows:
            return None
        queries, keys = nearest({(float(key[0]), float(key[1])) for key in table.rows}, heads)
        return table.sub(f"{queries:g}", f"{keys:g}"), AttentionHeads(queries, keys, heads.kv_dtype)

    def of_card(self) -> "Tables":
        """The same, read for the card itself."""
        return Tables(self._folder, self.card, self.card)

    def all_reduce(self, ranks: int, kernel: AllReduceKernel = "flashinfer") -> dict[int, float] | None:
        """Bytes -> seconds of an all-reduce by that kernel, where it was measured apart; None where none was measured
        among so many.
        """
        measured = self.collective(ALL_REDUCES[kernel], ranks)
        return self.collective("all_reduce", ranks) if measured is None else measured

    def collective(self, operation: str, ranks: int) -> dict[int, float] | None:
        """Bytes -> seconds of all_gather, reduce_scatter, alltoall or a kind of all-reduce; None where it was not
        measured among so many.
        """
        table = self._tables.get("collectives")
        row = table.rows.get((operation, str(ranks))) if table else None
        if table is None or row is None:
            return None
        known = ~np.isnan(row)
        times = rising(row[known]).tolist()
        return {int(size): time for size, time in zip(table.sizes[known], times, strict=True)}

    def _scaled(self, curve: RowCurve, dtype: str) -> RowCurve:
        if self._own == self._measured:
            return curve
        dtype = dtype if dtype in self._own.peak_flops else "bf16"
        return curve.scaled(self._own.roof(curve.sizes, dtype) / self._measured.roof(curve.sizes, dtype))

    def _attention(self, kind: str, kv_dtype: str, factor: float = 1.0) -> Table:
        table = self._tables.get(kind, Table(np.array([]), {})).sub("bf16" if kv_dtype == "fp16" else kv_dtype)
        return table._replace(rows={key: row * factor for key, row in table.rows.items()})

    def _gemm_format(self, weights: str, compute: str) -> str | None:
        name = _GEMM_FORMATS.get((weights, compute))
        return name if any(key[0] == name for key in self._tables["gemm"].rows) else None

    def _experts_format(self, weights: str) -> str | None:
        table = self._tables.get("moe")
        known = {key[0] for key in table.rows} if table else set()
        return next((name for name in _EXPERT_FORMATS.get(weights, ()) if name in known), None)


@cache
def _read_folder(folder: Path) -> dict[str, Table]:
    return {path.stem: read_table(path) for path in sorted(folder.glob("*.csv"))}


def tables_of(gpu: GpuSpec, *, tuned_fp8_decode: bool = True) -> Tables | None:
    """Tables of a card; None where it has none. Without `tuned_fp8_decode` FlashAttention 3 decodes over FP8 KV no
    faster than over BF16.
    """
    if gpu.tables is None:
        return None
    profile = resources.find("hardware_profiles", f"{gpu.tables}/profile.yaml")
    if profile is None:
        raise ValueError(f"tables: no profile {gpu.tables!r} whose tables these could be")
    card = find_gpu(gpu.tables)
    return Tables(
        profile.parent,
        card,
        gpu,
        same_links=gpu.interconnect == card.interconnect,
        tuned_fp8_decode=tuned_fp8_decode or gpu.architecture != "sm_90",
    )
