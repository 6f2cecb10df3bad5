"""How far kernel tables are from measurements that they do not hold.

The measurements of each table are dealt into ten parts. Of each part in turn the cost model is asked, with a table made
of the other nine, so that every measurement is predicted once by a table that has not seen it. Prompts are asked for as
far as they fit into one step. Errors are relative to the measurement.

Points of a grid are asked for in the middle of a gap of twice the grid's width: between the points of the table that is
written, which has them all, interpolation is nearer. Where measurements jump (another tile, another algorithm), no
interpolation follows: `roughness` is how far they lie from a smooth curve through their own neighbours.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from calibration import distil
from simserve.cost.attention import AttentionTime, layer_of
from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.collectives import half_of
from simserve.cost.device import Device
from simserve.cost.gemm_table import ExpertsShape
from simserve.cost.mixed_attention import attention_time
from simserve.cost.tables import Tables
from simserve.spec.hardware import GpuSpec
from simserve.spec.ticks import to_seconds

FOLDS = 10

_ALONE = ("decode_attention", "prefill_attention")
"""Attention whose batches were measured alone, one by one rather than on a grid."""

_NOTHING: Mapping[str, distil.Rows] = MappingProxyType({})

Pairs = Iterator[tuple[float, float]]
"""(predicted, measured) seconds."""


class HeldOut(NamedTuple):
    """Errors of one table at points that it did not see, as shares: `median` and `p90` of their size, and their median
    with its sign (`bias`). `roughness`: median distance of a measurement from the cubic, in logarithms, through its two
    neighbours on each side; nan where none has so many.
    """

    points: int
    median: float
    p90: float
    bias: float
    roughness: float


def held_out(kind: str, gpu: GpuSpec, measured: Mapping[str, list[distil.Row]]) -> HeldOut:
    """Errors of one kind of table at its own measurements, each left out once; `measured`: the rows of each kind.

    Raises:
        ValueError: none of them could be asked for.
    """
    rows = measured[kind]
    with TemporaryDirectory() as folder:
        pairs = list(_ask(kind, gpu, measured, Path(folder)))
    if not pairs:
        raise ValueError(f"{kind}: no measurement that the cost model would ask for")
    errors = np.array([predicted / measured - 1 for predicted, measured in pairs])
    size = np.abs(errors)
    median, p90, bias = float(np.median(size)), float(np.percentile(size, 90)), float(np.median(errors))
    return HeldOut(len(pairs), median, p90, bias, roughness(_series(kind, rows).values()))


def roughness(series: Iterable[Mapping[int, float]]) -> float:
    """Median distance of the points of curves (size -> time) from their neighbours, see `HeldOut`."""
    found: list[float] = []
    for times in series:
        sizes = sorted(times)
        x, y = np.log(sizes), np.log([times[size] for size in sizes])
        for i in range(2, len(sizes) - 2):
            near = [i - 2, i - 1, i + 1, i + 2]
            smooth = sum(y[j] * np.prod([(x[i] - x[k]) / (x[j] - x[k]) for k in near if k != j]) for j in near)
            found.append(abs(float(np.expm1(smooth - y[i]))))
    return float(np.median(found)) if found else float("nan")


def _series(kind: str, rows: list[distil.Row]) -> distil.Rows:
    """The measurements as curves over one size, one for each of whatever else was varied."""
    if kind not in _ALONE:
        whole = distil.TABLES[kind].make(rows)
        return {key: {size: time for size, time in row.items() if size} for key, row in whole.items()}
    shape = ("kv_dtype", "heads_q", "heads_kv", "batch")
    asked = [row for row in rows if _is_asked(kind, row)]
    return distil.collected((tuple(r[name] for name in shape), _length(r), float(r["time_us"])) for r in asked)


def fold_of(*parts: object) -> int:
    """Which of the parts a point belongs to, the same one at any time."""
    return zlib.crc32(repr(parts).encode()) % FOLDS


def _ask(kind: str, gpu: GpuSpec, measured: Mapping[str, list[distil.Row]], folder: Path) -> Pairs:
    whole = {each: distil.TABLES[each].make(rows) for each, rows in measured.items()}
    if kind in _ALONE:
        yield from _ask_attention(kind, gpu, measured[kind], folder)
    else:
        beside = {each: whole[each] for each in _ALONE if each in whole} if kind == "mixed_attention" else {}
        yield from ask_points(kind, gpu, whole[kind], folder, beside)


def ask_points(
    kind: str, gpu: GpuSpec, whole: distil.Rows, folder: Path, beside: Mapping[str, distil.Rows] = _NOTHING
) -> Pairs:
    """Each point of a table, from tables without a tenth of its points that are written to `folder`; `beside` them lie
    tables of other kinds.
    """
    ask = _ASK[kind]
    for fold in range(FOLDS):
        cut = {
            key: {size: time for size, time in row.items() if fold_of(gpu.name, key, size) != fold}
            for key, row in whole.items()
        }
        tables = _written({**beside, kind: cut}, gpu, folder / str(fold))
        for key, row in whole.items():
            for size in row.keys() - cut[key].keys():
                predicted = ask(tables, key, size)
                if predicted is not None:
                    yield predicted, 1e-6 * row[size]


def _written(found: Mapping[str, distil.Rows], gpu: GpuSpec, folder: Path) -> Tables:
    """Tables that hold nothing but these rows; a folder of its own for each, since folders are read once."""
    folder.mkdir()
    for kind, rows in found.items():
        distil.write(folder / f"{kind}.csv", distil.TABLES[kind].header, rows)
    return Tables(folder, gpu, gpu)


Ask = Callable[[Tables, distil.Key, int], float | None]
"""Seconds of one operator; None where the cost model never asks the table for it."""


def _ask_gemm(tables: Tables, key: distil.Key, size: int) -> float | None:
    curve = tables.gemm(key[0], key[0], float(key[2]), float(key[1]))
    return None if curve is None else curve(np.array([float(size)])).item()


def _ask_experts(tables: Tables, key: distil.Key, size: int) -> float | None:
    hidden, inter, top_k, experts, tp, ep = (int(part) for part in key[1:])
    weights = {"fp8_block": "fp8"}.get(key[0], key[0])
    if ep > 1 or (key[0] == "fp8" and tables.has_experts("fp8_block")):
        return None
    curve = tables.experts(weights, weights, ExpertsShape(hidden, inter, top_k, experts, tp))
    return None if curve is None else curve(np.array([float(size)])).item()


def _ask_collective(tables: Tables, key: distil.Key, size: int) -> float | None:
    """Between the measured messages: beyond them a rate goes on, not the table."""
    ranks = int(key[1])
    times = tables.collective(key[0], ranks) or {}
    if not times or not min(times) <= size <= max(times):
        return None
    return half_of(times, ranks)(np.array([float(size)])).item()


def _ask_mixed(tables: Tables, key: distil.Key, size: int) -> float:
    decodes, context, chunk = (int(part) for part in key[3:])
    heads = AttentionHeads(float(key[1]), float(key[2]), key[0])
    ticks = _in_model(tables, heads).mixed([(chunk, size)] if chunk else [], decodes, decodes * context)
    return to_seconds(ticks)


@cache
def _in_model(tables: Tables, heads: AttentionHeads) -> AttentionTime:
    return attention_time(layer_of(heads), Device.of(tables.card, tables, cold=True))


_ASK: dict[str, Ask] = {
    "gemm": _ask_gemm,
    "mixed_attention": _ask_mixed,
    "moe": _ask_experts,
    "collectives": _ask_collective,
}


def _ask_attention(kind: str, gpu: GpuSpec, rows: list[distil.Row], folder: Path) -> Pairs:
    is_decode = kind == "decode_attention"
    for fold in range(FOLDS):
        asked = [row for row in rows if fold_of(*row.values()) == fold and _is_asked(kind, row)]
        table = distil.TABLES[kind].make([row for row in rows if fold_of(*row.values()) != fold])
        device = Device.of(gpu, _written({kind: table}, gpu, folder / str(fold)))
        times: dict[AttentionHeads, AttentionTime] = {}
        for row in asked:
            batch, length = int(row["batch"]), _length(row)
            heads = AttentionHeads(float(row["heads_q"]), float(row["heads_kv"]), distil.dtype(row["kv_dtype"]))
            if heads not in times:
                times[heads] = AttentionTime(layer_of(heads), device)
            time = times[heads]
            ticks = time.decode(batch, batch * length) if is_decode else time.prefill([(length, 0)] * batch)
            yield to_seconds(ticks), 1e-6 * float(row["time_us"])


def _length(row: distil.Row) -> int:
    return int(row["kv_len"] if "kv_len" in row else row["seq_len"])


def _is_asked(kind: str, row: distil.Row) -> bool:
    """All decodes, and prompts as far as they fit into one step."""
    return kind == "decode_attention" or int(row["batch"]) * _length(row) <= distil.STEP_TOKENS
