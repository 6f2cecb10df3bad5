"""How far the distilled tables are from measurements that they do not hold.

A tenth of the points of each measured table is left out, tables are distilled from the rest, and the cost model is
asked for what was left out; attention is also asked for all heads, batches and lengths that the tables do not keep, but
not for more prompts than fit into a step. Errors are relative to the measurement.
"""

import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from calibration import distil
from simserve.cost.attention import Attention, AttentionTime
from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.curve import LogLogCurve
from simserve.cost.device import Device
from simserve.cost.gemm_table import ExpertsShape
from simserve.cost.tables import Rates, Tables
from simserve.spec.catalogue import find_gpu
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.hardware import GpuSpec
from simserve.spec.resources import names
from simserve.spec.ticks import to_seconds

Errors = Mapping[tuple[str, str], list[float]]
"""(GPU, kind of operator) -> relative errors."""

_LEFT_OUT = 10


def is_left_out(*parts: object) -> bool:
    """Whether a point belongs to the tenth that is left out, the same one at any time."""
    return zlib.crc32(repr(parts).encode()) % _LEFT_OUT == 0


def held_out_errors(source: Path) -> Errors:
    """Errors at the points left out of the measured tables in `source`."""
    errors: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    known = set(names("hardware_profiles"))
    for kind, (file, make) in distil.TABLES.items():
        for name, rows in distil.by_gpu(distil.read(source / file)).items():
            if name in known:
                with TemporaryDirectory() as folder:
                    pairs = _ask(kind, find_gpu(name), rows, make, Path(folder))
                    errors[name, kind] = [predicted / measured - 1 for predicted, measured in pairs]
    return errors


def _ask(
    kind: str, gpu: GpuSpec, rows: list[distil.Row], make: distil.Make, folder: Path
) -> Iterator[tuple[float, float]]:
    """(predicted, measured) seconds of each point left out."""
    if kind in {"decode_attention", "prefill_attention"}:
        kept = [row for row in rows if not is_left_out(*row.values())]
        distil.write(folder / f"{kind}.csv", distil.HEADERS[kind], make(kept))
        yield from _ask_attention(kind, Device.of(gpu, _tables(folder, gpu)), rows)
    else:
        yield from ask_cut(kind, gpu, make(rows), folder)


def ask_cut(kind: str, gpu: GpuSpec, whole: distil.Rows, folder: Path) -> Iterator[tuple[float, float]]:
    """(predicted, measured) seconds of a tenth of the points of a table, from the others, written to `folder`."""
    cut = {
        key: {size: time for size, time in row.items() if not is_left_out(gpu.name, key, size)}
        for key, row in whole.items()
    }
    distil.write(folder / f"{kind}.csv", distil.HEADERS[kind], cut)
    tables = _tables(folder, gpu)
    for key, row in whole.items():
        for size, time in row.items():
            if size not in cut[key]:
                predicted = _predict(kind, tables, key, size)
                if predicted is not None:
                    yield predicted, 1e-6 * time


def _tables(folder: Path, gpu: GpuSpec) -> Tables:
    return Tables(folder, Rates.of(gpu), Rates.of(gpu))


def _predict(kind: str, tables: Tables, key: distil.Key, size: int) -> float | None:
    """Seconds of one operator; None where the cost model never asks the table for it."""
    rows = np.array([float(size)])
    if kind == "collectives":
        times = tables.all_reduce(int(key[1])) or {}
        return LogLogCurve(tuple(times), tuple(times.values()))(rows).item()
    if kind == "gemm":
        curve = tables.gemm(key[0], key[0], float(key[2]), float(key[1]))
    else:
        hidden, inter, top_k, experts, tp, ep = (int(part) for part in key[1:])
        weights = {"fp8_block": "fp8"}.get(key[0], key[0])
        if ep > 1 or (key[0] == "fp8" and tables.has_experts("fp8_block")):
            return None
        curve = tables.experts(weights, weights, ExpertsShape(hidden, inter, top_k, experts, tp))
    return None if curve is None else curve(rows).item()


def _ask_attention(kind: str, device: Device, rows: list[distil.Row]) -> Iterator[tuple[float, float]]:
    times: dict[tuple[str, str, str], AttentionTime] = {}
    for row in rows:
        heads, keys, dtype = row["heads_q"], row["heads_kv"], distil.dtype(row["kv_dtype"])
        batch = int(row["batch"])
        is_decode = kind == "decode_attention"
        length = int(row["kv_len"] if is_decode else row["seq_len"])
        kept = distil.is_kept(row) if is_decode else batch == 1
        if (kept and not is_left_out(*row.values())) or (not is_decode and batch * length > distil.STEP_TOKENS):
            continue
        if (heads, keys, dtype) not in times:
            times[heads, keys, dtype] = attention(AttentionHeads(float(heads), float(keys), dtype), device)
        time = times[heads, keys, dtype]
        ticks = time.decode(batch, batch * length) if is_decode else time.prefill([(length, 0)] * batch)
        yield to_seconds(ticks), 1e-6 * float(row["time_us"])


def attention(heads: AttentionHeads, device: Device) -> AttentionTime:
    """Attention of one layer with some heads of 128 elements."""
    flops = 4 * heads.queries * 128
    kv_bytes = 2 * heads.keys * 128 * bytes_per_element(heads.kv_dtype)
    layer = Attention(heads.queries, kv_bytes, flops, flops, 0, None, "bf16", heads)
    return AttentionTime(layer, device)


def report(source: Path) -> None:
    """Prints the errors of each GPU and kind of operator, in percent."""
    out = sys.stdout.write
    out(f"{'GPU':20} {'operator':18} {'points':>6} {'median':>7} {'p90':>7} {'bias':>7}\n")
    for (gpu, kind), errors in sorted(held_out_errors(source).items()):
        size = np.abs(errors)
        middle, high, bias = 100 * np.median(size), 100 * np.percentile(size, 90), 100 * np.median(errors)
        out(f"{gpu:20} {kind:18} {len(errors):6} {middle:6.1f}% {high:6.1f}% {bias:+6.1f}%\n")
