"""Distils published kernel measurements into the tables of `hardware_profiles/<gpu>/` that the level `kernels` reads.

`python -m calibration.distil TABLES -o hardware_profiles/` reads the CSV files of a folder (one measured kernel a row;
columns of `gemm.csv`, `generation_attention.csv`, `context_attention.csv`, `moe.csv` and `comm.csv` below) and writes
one file for each kind of operator of each GPU that has a profile: rows are shapes, columns are sizes, entries are
microseconds. Kept is what interpolation needs. `--report` prints how far the tables are from measurements that they do
not hold, without writing anything.
"""

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from simserve.cost.attention_tables import IDLE_SHARE

Row = Mapping[str, str]
Key = tuple[str, ...]
Rows = dict[Key, dict[int, float]]
"""Shape -> size -> microseconds."""

DTYPES = {"bfloat16": "bf16", "half": "bf16", "float16": "bf16", "w4a16_mxfp4": "mxfp4"}
"""Our names of formats. fp8_block: fp8 with a scale for each 128 x 128 weights."""

DECODE_LENGTHS = {16, 64, 128, *(2**i for i in range(8, 18))}
"""Lengths of context that are kept: below 16 tokens nothing changes."""

DECODE_HEADS = {("4", "1"), ("8", "1"), ("32", "8"), ("64", "8")}
"""(Query, KV) heads that are kept. Attention over b sequences with 8 KV heads takes the time of 4 b with 2."""

STEP_TOKENS = 8192
"""Tokens that one step prefills at most: the largest default of engines."""

HEADERS: dict[str, Key] = {
    "gemm": ("dtype", "n", "k"),
    "decode_attention": ("kv_dtype", "heads_q", "heads_kv", "batch"),
    "prefill_attention": ("kv_dtype", "heads_q", "heads_kv", "load"),
    "moe": ("dtype", "hidden", "inter", "top_k", "experts", "tp", "ep"),
    "collectives": ("operation", "ranks"),
}


def read(path: Path) -> list[Row]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def dtype(name: str) -> str:
    """Our name of a number format."""
    return DTYPES.get(name, name)


def by_gpu(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each GPU, by the name of its profile."""
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["gpu"].lower()].append(row)
    return groups


def collected(points: Iterable[tuple[Key, int, float]]) -> Rows:
    """Points as rows; of points measured more than once the median."""
    found: defaultdict[Key, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for key, size, time in points:
        found[key][size].append(time)
    return {key: {size: statistics.median(times) for size, times in row.items()} for key, row in found.items()}


def gemm(rows: Iterable[Row]) -> Rows:
    """GEMM of m rows by k x n weights: a row for each (format, n, k), a column for each m."""
    return collected(((dtype(r["dtype"]), r["n"], r["k"]), int(r["m"]), float(r["time_us"])) for r in rows)


def decode_attention(rows: Iterable[Row]) -> Rows:
    """Decode attention of a batch with equal contexts: a column for each length of context."""
    return collected(
        ((dtype(r["kv_dtype"]), r["heads_q"], r["heads_kv"], r["batch"]), int(r["kv_len"]), float(r["time_us"]))
        for r in rows
        if is_kept(r)
    )


def is_kept(row: Row) -> bool:
    """Whether a decode is in the tables."""
    return int(row["kv_len"]) in DECODE_LENGTHS and (row["heads_q"], row["heads_kv"]) in DECODE_HEADS


def prefill_attention(rows: Iterable[Row]) -> Rows:
    """Causal attention over prompts: `alone` is one, `more` what each further one of its length adds in a step."""
    measured = collected(
        ((dtype(r["kv_dtype"]), r["heads_q"], r["heads_kv"], r["batch"]), int(r["seq_len"]), float(r["time_us"]))
        for r in rows
    )
    table: Rows = {}
    for heads in sorted({key[:3] for key in measured}):
        alone = measured.get((*heads, "1"), {})
        batches = {int(key[3]): row for key, row in measured.items() if key[:3] == heads and key[3] != "1"}
        table[*heads, "alone"] = alone
        table[*heads, "more"] = {}
        for size, time in alone.items():
            measured_batches = [batch for batch, row in batches.items() if size in row]
            if not measured_batches:
                continue
            fitting = [batch for batch in measured_batches if batch * size <= STEP_TOKENS // 2]
            most = max(fitting, default=min(measured_batches))
            idle = IDLE_SHARE * alone.get(1, time)
            table[*heads, "more"][size] = max(batches[most][size] - time + idle, 0.05 * time) / (most - 1)
    return table


def moe(rows: Iterable[Row]) -> Rows:
    """All experts of a layer on one rank: a column for each number of tokens.

    Real routers lie between the two that were measured, `balanced` and a power law: the geometric mean of both, which
    among few tokens is also about what uniform routing touches.
    """
    measured: defaultdict[str, list[tuple[Key, int, float]]] = defaultdict(list)
    names = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    for r in rows:
        key = (dtype(r["dtype"]), *(r[name] for name in names))
        measured[r["distribution"]].append((key, int(r["num_tokens"]), float(r["time_us"])))
    balanced, skewed = (collected(measured[name]) for name in ("balanced", "power_law_1.2"))
    return {
        key: {size: (time * skewed[key][size]) ** 0.5 for size, time in row.items() if size in skewed[key]}
        for key, row in balanced.items()
    }


def collectives(rows: Iterable[Row]) -> Rows:
    """All-reduce by bytes: vLLM's own kernel in a CUDA graph, from 16 MiB NCCL where it is faster."""
    own, nccl = (
        collected(
            (("all_reduce", r["num_gpus"]), int(r["message_bytes"]), float(r["time_us"]))
            for r in kept
            if r["op"] == "all_reduce" and r["kernel"] == kernel
        )
        for kept, kernel in ((list(rows), "vllm_graph"), (list(rows), "nccl"))
    )
    return {
        key: {
            size: min(time, nccl.get(key, {}).get(size, time)) if size >= 2**24 else time
            for size, time in row.items()
            if 1024 <= size <= 2**29
        }
        for key, row in own.items()
    }


Make = Callable[[list[Row]], Rows]

TABLES: Mapping[str, tuple[str, Make]] = {
    "gemm": ("gemm.csv", gemm),
    "decode_attention": ("generation_attention.csv", decode_attention),
    "prefill_attention": ("context_attention.csv", prefill_attention),
    "moe": ("moe.csv", moe),
    "collectives": ("comm.csv", collectives),
}
"""Kind of operator -> its measurements, and what makes its table from them."""


def write(path: Path, header: Key, rows: Rows) -> None:
    """A table: key columns, then one column for each size."""
    sizes = sorted({size for row in rows.values() for size in row})
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header, *sizes])
        for key, row in sorted(rows.items(), key=lambda item: tuple(_sortable(part) for part in item[0])):
            writer.writerow([*key, *(f"{row[size]:.4g}" if size in row else "" for size in sizes)])


def _sortable(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdigit() else (-1, part)


def distil(source: Path, target: Path) -> Iterator[Path]:
    """Writes the tables of each GPU of which `target` has a profile; yields their paths."""
    for kind, (file, make) in TABLES.items():
        for gpu, rows in by_gpu(read(source / file)).items():
            if (target / gpu / "profile.yaml").exists():
                path = target / gpu / f"{kind}.csv"
                write(path, HEADERS[kind], make(rows))
                yield path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m calibration.distil", description=__doc__.split("\n\n")[0])
    parser.add_argument("tables", type=Path, help="folder of the measured tables")
    parser.add_argument("-o", "--out", type=Path, default=Path("hardware_profiles"), help="folder of the profiles")
    parser.add_argument("--report", action="store_true", help="print errors at held-out points, write nothing")
    arguments = parser.parse_args()
    if arguments.report:
        from calibration.held_out import report

        report(arguments.tables)
        return
    for path in distil(arguments.tables, arguments.out):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
