"""Writing traces: any known format, or the traffic of a scenario, as our own CSV or JSON lines.

Times are written to the nanosecond, the grid on which `Workload` keeps them, so that a trace that is read again gives
the very same run.
"""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.workload.formats.own import HEADER_FORMAT, PREFIX
from simserve.workload.formats.table import Options
from simserve.workload.prefix_ids import PrefixIds
from simserve.workload.traces import FloatArray, Trace, read_trace

Field = float | int | str | list[list[int]]


def convert_trace(
    source: Path,
    target: Path,
    format: TraceFormat | None = None,
    *,
    limit: int | None = None,
    offset: int = 0,
    speedup: float = 1.0,
    rate: float | None = None,
    skip_bad_rows: bool = False,
    force: bool = False,
    chat_template_tokens: int | None = None,
    options: Options | None = None,
) -> Trace:
    """Rewrite a trace of any known format as our own CSV (JSON lines or parquet where `target` ends so).

    `chat_template_tokens` are what the server adds to a prompt that the client counted. Where they are not known, what
    is written has the client's count only, under its name.

    Raises:
        ScenarioError: the source cannot be used, or the target is there and not `force`.
    """
    trace = read_trace(
        source,
        format,
        limit=limit,
        offset=offset,
        speedup=speedup,
        rate=rate,
        skip_bad_rows=skip_bad_rows,
        needs_arrival=None,
        chat_template_tokens=chat_template_tokens,
        options=options,
    )
    write_trace(trace, target, force=force)
    return trace


def write_trace(trace: Trace, target: Path, *, force: bool = False) -> None:
    """Write a trace in our own format, whole or not at all; columns that say nothing are left out.

    Raises:
        ScenarioError: the target is there and not `force`, or is CSV, which has no place for how prompts begin.
    """
    if trace.prefix is not None and target.suffix != ".jsonl":
        raise ScenarioError(
            f"{target}: the trace says which prompts begin alike, for which CSV has no column; name it"
            f" {target.with_suffix('.jsonl').name}"
        )
    if target.exists() and not force:
        raise ScenarioError(f"{target}: is there already; choose another name or force it")
    if target.suffix == ".parquet":
        write: Callable[[dict[str, list[Field]], Path], None] = _write_parquet
    else:
        write = _write_jsonl if target.suffix == ".jsonl" else _write_csv
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.part")
    try:
        write(_fields(trace), unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_csv(columns: dict[str, list[Field]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_jsonl(columns: dict[str, list[Field]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(json.dumps({"format": HEADER_FORMAT}) + "\n")
        for row in zip(*columns.values(), strict=True):
            given = {name: field for name, field in zip(columns, row, strict=True) if field != ""}
            file.write(json.dumps(given) + "\n")


def _write_parquet(columns: dict[str, list[Field]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    given = {name: [None if field == "" else field for field in column] for name, column in columns.items()}
    pq.write_table(pa.table(given), path)


def _fields(trace: Trace) -> dict[str, list[Field]]:
    """Columns that say something, an absent value being empty text."""
    columns: dict[str, list[Field]] = {} if np.isnan(trace.arrival).all() else {"arrival": _times(trace.arrival)}
    columns |= {**_input_fields(trace), "output_len": trace.output_len.tolist()}
    if (trace.max_tokens != trace.output_len).any():
        columns["max_tokens"] = trace.max_tokens.tolist()
    if trace.priority is not None:
        columns["priority"] = trace.priority.tolist()
    words: dict[str, list[Field]] = {"class": trace.class_name.tolist(), "session": trace.session.tolist()}
    columns |= {name: column for name, column in (words | {"think": _times(trace.think)}).items() if set(column) - {""}}
    if trace.prefix is not None:
        columns[PREFIX] = _prefixes(trace.prefix)
    return columns


def _input_fields(trace: Trace) -> dict[str, list[Field]]:
    """Prompt tokens, each count under the name of whoever counted."""
    if trace.input_counted_by == "client":
        return {"client_input_len": trace.input_len.tolist()}
    columns: dict[str, list[Field]] = {"input_len": trace.input_len.tolist()}
    if trace.client_input_len is not None:
        columns["client_input_len"] = ["" if tokens < 0 else tokens for tokens in trace.client_input_len.tolist()]
    return columns


def _prefixes(prefix: PrefixIds) -> list[Field]:
    """Pairs of an id and the tokens up to its end; empty where nothing is said."""
    return [[[*pair] for pair in prefix.pairs(row)] if prefix.known[row] else "" for row in range(len(prefix))]


def _times(seconds: FloatArray) -> list[Field]:
    """Seconds to the nanosecond, as numbers whose shortest text has no more digits; empty where there is no time."""
    return ["" if math.isnan(time) else time for time in np.round(seconds, 9).tolist()]
