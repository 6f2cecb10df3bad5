"""Trace files as tables: each format that `traces.read_trace` understands, turned into the same columns.

Nothing is judged here beyond "this is not a row of this format": values are checked in one place, `traces.py`.
Formats: `azure` (TIMESTAMP, ContextTokens, GeneratedTokens: the Azure LLM inference traces of 2023 and 2024), our own
`csv` and `jsonl`, and `vllm_bench`, the JSON that `vllm bench serve --save-result --save-detailed` leaves (keys of
vLLM 0.32, vllm/benchmarks/serve.py).
"""

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.spec.strict import nearest

INPUT_COLUMNS: Final = ("input_len", "client_input_len")
"""Prompt tokens as the server and as the client counted them; a trace has one of them or both."""
OPTIONAL_COLUMNS: Final = ("arrival", "max_tokens", "class", "priority", "session", "think")
HEADER_FORMAT: Final = "simserve-trace"
_LATER_COLUMNS: Final = ("prefix",)

Rows = slice
Column = Sequence[Any] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a trace file as columns, in the order in which they are to be taken.

    `numbers` says where each row stands: the 1-based line, or the 0-based index of a request where the file has no
    lines (`place` is the noun). `broken` maps a row to what keeps it from being one. `fields` maps a column to the name
    and the fields of the file that it was made of, where these differ. `own_clock` is true where arrivals count from
    the start of the run, false where they count from an origin of the recorder's.
    """

    columns: Mapping[str, Column]
    numbers: Sequence[int]
    broken: Mapping[int, str] = field(default_factory=dict)
    fields: Mapping[str, tuple[str, Column]] = field(default_factory=dict)
    place: str = "line"
    own_clock: bool = True


def read_azure(path: Path, rows: Rows) -> Table:
    """Read the CSV of the Azure LLM inference traces; times become seconds, to the 100 ns that the file holds."""
    names = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    table = _read_csv_columns(path, rows, required=[(name,) for name in names], optional=())
    stamps, inputs, outputs = (table.columns[name] for name in names)
    columns = {"arrival": _seconds_of_dates(stamps), "input_len": inputs, "output_len": outputs}
    fields = dict(zip(columns, zip(names, (stamps, inputs, outputs), strict=True), strict=True))
    return Table(columns, table.numbers, table.broken, fields, own_clock=False)


def read_csv(path: Path, rows: Rows) -> Table:
    """Read our own CSV: a header line that names the columns, in any order."""
    return _read_csv_columns(path, rows, (INPUT_COLUMNS, ("output_len",)), OPTIONAL_COLUMNS)


def read_jsonl(path: Path, rows: Rows) -> Table:
    """Read our own JSON lines: one object per request; an object with the key `format` may head the file."""
    numbers: list[int] = []
    records: list[dict[str, Any]] = []
    broken: dict[int, str] = {}
    for number, line in islice(_json_lines(path), rows.start, rows.stop):
        record, fault = _json_record(line)
        if fault:
            broken[len(records)] = fault
        _refuse_unknown(record, (*INPUT_COLUMNS, "output_len", *OPTIONAL_COLUMNS), f"{path}, line {number}")
        numbers.append(number)
        records.append(record)
    found = {name for record in records for name in record}
    counted = [name for name in INPUT_COLUMNS if name in found] or ["input_len"]
    names = [*counted, "output_len", *(name for name in OPTIONAL_COLUMNS if name in found)]
    return Table({name: [record.get(name) for record in records] for name in names}, numbers, broken)


def read_vllm_bench(path: Path, rows: Rows) -> Table:
    """Read the detailed result of `vllm bench serve`: what was sent when, and how long the answers were.

    `start_times` is the client's own clock, whose origin means nothing. A request that failed has an entry in `errors`,
    an output length of 0 and perhaps a start time of 0: a broken row. Requests stand in the order of the data set,
    which concurrent clients need not keep: they are put in order of time. Input lengths are those the client counted.
    """
    names = ("start_times", "input_lens", "output_lens")
    lists = _bench_lists(path, names)
    requests = range(len(lists["errors"]))[rows]
    starts, inputs, outputs = (lists[name][rows] for name in names)
    errors = lists["errors"][rows]
    failed = {row: _failure(errors[row]) for row, output in enumerate(outputs) if errors[row] or output == 0}
    times = to_floats(starts)
    times[list(failed)] = np.inf
    order = np.argsort(times, kind="stable").tolist()
    columns = {
        column: [fields[row] for row in order]
        for column, fields in (("arrival", starts), ("client_input_len", inputs), ("output_len", outputs))
    }
    broken = {place: failed[row] for place, row in enumerate(order) if row in failed}
    fields = dict(zip(columns, zip(names, columns.values(), strict=True), strict=True))
    return Table(columns, [requests[row] for row in order], broken, fields, place="request", own_clock=False)


READERS: Final[Mapping[TraceFormat, Callable[[Path, Rows], Table]]] = {
    "azure": read_azure,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "vllm_bench": read_vllm_bench,
}


def to_floats(column: Column) -> NDArray[np.float64]:
    """Numbers of a column, nan where a field is not one (true and false are not)."""
    if isinstance(column, np.ndarray):
        return column
    if set(map(type, column)) <= {int, float, str}:
        with suppress(ValueError, OverflowError):
            return np.array(column, dtype=np.float64)
    return np.array([_float(field) for field in column], dtype=np.float64)


def _float(field: object) -> float:
    if isinstance(field, int | float | str) and not isinstance(field, bool):
        with suppress(ValueError, OverflowError):
            return float(field)
    return math.nan


def _seconds_of_dates(stamps: Column) -> NDArray[np.float64]:
    """Seconds since the first date that can be read; nan where there is none."""
    import pandas as pd

    dates = pd.to_datetime(pd.Series(stamps, dtype="str"), format="ISO8601", errors="coerce", utc=True)
    readable = dates.notna().to_numpy()
    ticks = dates.dt.as_unit("ns").astype("int64").to_numpy()
    origin = ticks[readable][0] if readable.any() else 0
    return np.where(readable, (ticks - origin) / 1e9, np.nan)


@contextmanager
def open_trace(path: Path) -> Iterator[TextIO]:
    """Open a trace file, plain or gzipped, as text.

    Raises:
        ScenarioError: it cannot be opened, or what is read in the block is not text.
    """
    try:
        with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as data:
            yield io.TextIOWrapper(cast(BinaryIO, data), encoding="utf-8-sig", newline="")
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such trace file") from None
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise ScenarioError(f"{path}: cannot be read as a trace: {error}") from error


Required = Sequence[Sequence[str]]
"""Columns that must be there, each with those that can stand for it."""


def _read_csv_columns(path: Path, rows: Rows, required: Required, optional: Sequence[str]) -> Table:
    numbers: list[int] = []
    records: list[list[str]] = []
    with open_trace(path) as file:
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, required, optional, f"{path}, line 1")
        for record in islice((record for record in reader if record), rows.start, rows.stop):
            numbers.append(reader.line_num)
            records.append(record)
    width = len(header)
    broken = {
        row: f"has {len(record)} fields, the header has {width}"
        for row, record in enumerate(records)
        if len(record) != width
    }
    for row in broken:
        records[row] = [""] * width
    columns = zip(*records, strict=True) if records else ((),) * width
    return Table(dict(zip(header, columns, strict=True)), numbers, broken)


def _check_header(header: Sequence[str], required: Required, optional: Sequence[str], place: str) -> None:
    _refuse_unknown(header, (*chain(*required), *optional), place)
    missing = [names for names in required if not any(name in header for name in names)]
    if missing:
        raise ScenarioError(f"{place}: the header {','.join(header)!r} has no column {missing[0][0]!r}")
    if len(set(header)) != len(header):
        raise ScenarioError(f"{place}: the header {','.join(header)!r} names a column twice")


def _refuse_unknown(names: Iterable[str], known: Sequence[str], place: str) -> None:
    for name in names:
        if name in _LATER_COLUMNS:
            raise ScenarioError(f"{place}: column {name!r} is not modelled yet")
        if name not in known:
            near = nearest(name, known)
            remedy = f"did you mean {near!r}?" if near else f"expected some of {', '.join(known)}"
            raise ScenarioError(f"{place}: unknown column {name!r}; {remedy}")


def _json_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of requests with their numbers; blank lines and a header are passed over."""
    with open_trace(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip() and not (number == 1 and _is_header(line, path)):
                yield number, line


def _is_header(line: str, path: Path) -> bool:
    record, _ = _json_record(line)
    if "format" not in record:
        return False
    if record != {"format": HEADER_FORMAT}:
        raise ScenarioError(f'{path}, line 1: expected the header {{"format": "{HEADER_FORMAT}"}}, got {line.strip()}')
    return True


def _json_record(line: str) -> tuple[dict[str, Any], str]:
    """The object of a line, or an empty one and why there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"is not JSON: {getattr(error, 'msg', error)}"
    return (record, "") if isinstance(record, dict) else ({}, "is not a JSON object")


def _json_document(path: Path) -> dict[str, Any]:
    with open_trace(path) as file:
        record, fault = _json_record(file.read())
    if fault:
        raise ScenarioError(f"{path}: {fault}; expected the result file of `vllm bench serve`")
    return record


def _bench_lists(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Lists of a benchmark result, all of one length: those named, and `errors`, which may be left out."""
    result = _json_document(path)
    lists: dict[str, list[Any]] = {}
    for name in names:
        if not isinstance(result.get(name), list):
            raise ScenarioError(
                f"{path}: has no list `{name}`; only `vllm bench serve --save-result --save-detailed` writes it"
            )
        lists[name] = result[name]
    count = len(lists[names[0]])
    lists["errors"] = result.get("errors") or [""] * count
    for name, entries in lists.items():
        if len(entries) != count:
            raise ScenarioError(f"{path}: {len(entries)} `{name}` for {count} `{names[0]}`; the file is not whole")
    return lists


def _failure(error: object) -> str:
    """Last line of the client's traceback."""
    lines = str(error or "").strip().splitlines()
    return f"is of a request that failed: {lines[-1] if lines else 'no output'}"
