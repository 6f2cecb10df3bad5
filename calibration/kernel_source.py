"""Measured kernels as they are published: a folder of CSV files, one kernel a row, for any number of GPUs.

    gemm.csv                  gpu, dtype, m, n, k, time_us                         m rows by k x n weights
    generation_attention.csv  gpu, kv_dtype, batch, kv_len, heads_q, heads_kv, time_us      decodes of equal contexts
    context_attention.csv     gpu, kv_dtype, batch, seq_len, heads_q, heads_kv, time_us     prompts without history
    moe.csv                   gpu, dtype, num_tokens, hidden_size, inter_size, topk, num_experts, moe_tp_size,
                              moe_ep_size, distribution, time_us                   all experts of a layer on one rank
    comm.csv                  gpu, op, kernel, num_gpus, message_bytes, time_us    among the GPUs of one node

Files may be absent, other columns are left alone. Heads are of 128 elements; rows whose `head_dim` says otherwise are
not read. `calibration.distil` says which values of `distribution`, `op` and `kernel` it takes.
"""

import csv
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path

from calibration.distil import TABLES, Kind, Row
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
    folder = next((each for each in _candidates(source) if any((each / kind.file).exists() for kind in _KINDS)), None)
    if folder is None:
        raise ScenarioError(f"{source}: holds no measured kernels; expected {_any_of()}, with the columns\n{_layout()}")
    found: dict[str, list[Row]] = {}
    gpus: set[str] = set()
    for name, kind in TABLES.items():
        if (folder / kind.file).exists():
            rows = list(_read(folder / kind.file, kind))
            gpus |= {row["gpu"].lower() for row in rows}
            own = [row for row in rows if row["gpu"].lower() == gpu.lower()]
            if own:
                found[name] = own
    if not found:
        near = nearest(gpu.lower(), gpus)
        remedy = f"did you mean --gpu {near}?" if near else f"--gpu takes one of {', '.join(sorted(gpus)) or 'none'}"
        raise ScenarioError(f"{folder}: no kernel was measured on {gpu!r}; {remedy}")
    return found


_KINDS = tuple(TABLES.values())


def _any_of() -> str:
    return "one or more of " + ", ".join(kind.file for kind in _KINDS)


def _layout() -> str:
    return "\n".join(f"  {kind.file}: {', '.join(_columns(kind))}" for kind in _KINDS)


def _columns(kind: Kind) -> tuple[str, ...]:
    return ("gpu", *kind.words, *kind.counts, "time_us")


def _candidates(source: Path) -> Iterable[Path]:
    """The folder itself, then those in it."""
    return [source, *sorted(path for path in source.iterdir() if path.is_dir())]


def _read(path: Path, kind: Kind) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _columns(kind) if name not in (reader.fieldnames or ())]
        if missing:
            raise ScenarioError(
                f"{path}: has no column {', '.join(missing)}; expected {', '.join(_columns(kind))} and any others"
            )
        for row in reader:
            place = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise ScenarioError(f"{place}: has not as many fields as the header")
            for name in kind.counts:
                if not row[name].isdecimal() or int(row[name]) == 0:
                    raise ScenarioError(f"{place}: {name}: expected a whole number above 0, got {row[name]!r}")
            if not _is_time(row["time_us"]):
                raise ScenarioError(f"{place}: time_us: expected microseconds above 0, got {row['time_us']!r}")
            if row.get("head_dim") in {None, "", "128"}:
                yield row


def _is_time(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf") and isfinite(float(text))
    except ValueError:
        return False
