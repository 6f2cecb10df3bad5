"""Measured kernels as they are published: a folder of CSV files, one kernel a row, for any number of GPUs.

    gemm.csv                  gpu, dtype, m, n, k, time_us                         m rows by k x n weights
    generation_attention.csv  gpu, kv_dtype, batch, kv_len, heads_q, heads_kv, time_us      decodes of equal contexts
    context_attention.csv     gpu, kv_dtype, batch, seq_len, heads_q, heads_kv, time_us     prompts without history
    mixed_attention.csv       gpu, model, prefill_chunk, kv_prefill, n_decode, kv_decode, time_us      inside a model in
                              bf16 on one GPU: a chunk after its history and decodes of equal contexts, 0 for none
    moe.csv                   gpu, dtype, num_tokens, hidden_size, inter_size, topk, num_experts, moe_tp_size,
                              moe_ep_size, distribution, time_us                   all experts of a layer on one rank
    comm.csv                  gpu, op, kernel, num_gpus, message_bytes, time_us    among the GPUs of one node

Files may be absent or have a longer name that ends so; other columns are left alone. Heads are of 128 elements; rows
whose `head_dim` says otherwise are not read. `calibration.distil` says which values of `distribution`, `op` and
`kernel` it takes.
"""

import csv
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path

from calibration.distil import TABLES, Layout, Row
from simserve.spec.errors import ScenarioError
from simserve.spec.strict import nearest


def read_kernels(source: Path, gpu: str) -> dict[str, list[Row]]:
    """Kind of operator -> the rows of one GPU, whatever the case of its name.

    Raises:
        ScenarioError: no such folder or none of the files in it; a column is missing, a cell is not what its column
            holds; or no row is of that GPU.
    """
    if not source.is_dir():
        raise ScenarioError(f"{source}: is not a folder; expected one with {_any_of()}")
    folder = next((each for each in _candidates(source) if any(_files(each, kind) for kind in TABLES)), None)
    if folder is None:
        raise ScenarioError(
            f"{source}: holds no measured kernels; expected {_any_of()}, with the columns\n{_columns()}"
        )
    found: dict[str, list[Row]] = {}
    gpus: set[str] = set()
    for kind, table in TABLES.items():
        rows = [row for path in _files(folder, kind) for row in _read(path, table.layout)]
        gpus |= {row["gpu"].lower() for row in rows}
        if own := [row for row in rows if row["gpu"].lower() == gpu.lower()]:
            found[kind] = own
    if not found:
        near = nearest(gpu.lower(), gpus)
        remedy = f"did you mean --gpu {near}?" if near else f"--gpu takes one of {', '.join(sorted(gpus)) or 'none'}"
        raise ScenarioError(f"{folder}: no kernel was measured on {gpu!r}; {remedy}")
    return found


def _files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*{TABLES[kind].layout.file}"))


def _any_of() -> str:
    return "one or more of " + ", ".join(kind.layout.file for kind in TABLES.values())


def _columns() -> str:
    layouts = [kind.layout for kind in TABLES.values()]
    return "\n".join(f"  {layout.file}: {', '.join(layout.columns)}" for layout in layouts)


def _candidates(source: Path) -> Iterable[Path]:
    """The folder itself, then those in it."""
    return [source, *sorted(path for path in source.iterdir() if path.is_dir())]


def _read(path: Path, layout: Layout) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in layout.columns if name not in (reader.fieldnames or ())]
        if missing:
            raise ScenarioError(
                f"{path}: has no column {', '.join(missing)}; expected {', '.join(layout.columns)} and any others"
            )
        for row in reader:
            _check(row, layout, f"{path}, line {reader.line_num}")
            if row.get("head_dim") in {None, "", "128"}:
                yield row


def _check(row: Row, layout: Layout, place: str) -> None:
    if None in row or None in row.values():
        raise ScenarioError(f"{place}: has not as many fields as the header")
    for name in (*layout.counts, *layout.or_none):
        above = name not in layout.or_none
        if not row[name].isdecimal() or (above and int(row[name]) == 0):
            expected = "a whole number above 0" if above else "a whole number or 0"
            raise ScenarioError(f"{place}: {name}: expected {expected}, got {row[name]!r}")
    if not _is_time(row["time_us"]):
        raise ScenarioError(f"{place}: time_us: expected microseconds above 0, got {row['time_us']!r}")


def _is_time(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf") and isfinite(float(text))
    except ValueError:
        return False
