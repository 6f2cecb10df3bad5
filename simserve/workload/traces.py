"""Traces: recorded traffic as requests. Reads a file of any known format and checks every value.

A row that cannot be a request (no time, a negative length, an answer of no tokens, a time before the previous row's) is
an error that names file and line, or, on request, left out and counted. Our own format, CSV or JSON lines, has the
columns `arrival` (s), `input_len`, `output_len` and, where wanted, `client_input_len`, `max_tokens`, `class`,
`priority`, `session` and `think` (s). The rows of one session are the turns of a chat, in order: the prompt of each
holds the previous prompt and its answer. With `think` a turn comes that long after the previous answer, and needs no
`arrival`.

`input_len` is what the server computes, as `prompt_tokens` of its answers states it: chat template and BOS token are
inside. `client_input_len` is what the client counted. Either may be larger, since tokenizers differ and servers
truncate. A trace that has the client's count alone is simulated with it, plus `chat_template_tokens` where these are
known.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.workload.lengths import LONGEST
from simserve.workload.trace_formats import READERS, Column, Table, to_floats

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
CountedBy = Literal["server", "client"]


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of a trace, one row each, in the order of the file (`vllm bench serve`: of time).

    `number` is the line of the file a row came from (for `vllm bench serve` the index of the request). `arrival` counts
    from the start of the run, nan where there is none; `think` is nan where there is none; `class_name` and `session`
    are empty text where there is none; `priority` is None where the trace has none. `input_len` is what is computed,
    and `input_counted_by` says whose count that is. `client_input_len` is what the client counted, -1 in a row without
    it, None where no row has it.
    """

    number: IntArray
    arrival: FloatArray
    input_len: IntArray
    output_len: IntArray
    max_tokens: IntArray
    priority: IntArray | None
    class_name: NDArray[np.str_]
    session: NDArray[np.str_]
    think: FloatArray
    skipped_rows: int
    client_input_len: IntArray | None = None
    input_counted_by: CountedBy = "server"

    def __len__(self) -> int:
        return len(self.input_len)


def read_trace(
    path: Path,
    format: TraceFormat = "csv",
    *,
    limit: int | None = None,
    offset: int = 0,
    speedup: float = 1.0,
    skip_bad_rows: bool = False,
    needs_arrival: bool = True,
    chat_template_tokens: int | None = None,
) -> Trace:
    """Read `limit` rows of a trace after the first `offset`, its clock running `speedup` times faster.

    Formats whose clock has an origin of its own, and all after an `offset`, start at time 0 with the first request that
    is kept. `needs_arrival` is false where an arrival process re-times the rows. `chat_template_tokens` are what the
    server adds to every prompt that the client counted (chat template, BOS token), None where that is not known.

    Raises:
        ScenarioError: no such file, no rows, a bad row and not `skip_bad_rows`, or `chat_template_tokens` for
            prompts that the server counted.
    """
    table = READERS[format](path, slice(offset, None if limit is None else offset + limit))
    if not table.numbers:
        raise ScenarioError(f"{path}: no rows after offset {offset}")
    if chat_template_tokens is not None and "input_len" in table.columns:
        name, _ = table.fields.get("input_len", ("input_len", ()))
        raise ScenarioError(
            f"{path}: {name} is the server's count, its chat template inside: take chat_template_tokens out"
        )
    trace = _checked(table, path, skip_bad_rows, needs_arrival, chat_template_tokens)
    if not len(trace):
        raise ScenarioError(f"{path}: all of the {trace.skipped_rows} rows are bad")
    return _retimed(trace, from_zero=offset > 0 or not table.own_clock, speedup=speedup)


class _Fault(NamedTuple):
    """Rows (a mask) that cannot be used because of one column."""

    bad: BoolArray
    column: str
    why: str


def _checked(table: Table, path: Path, skip_bad_rows: bool, needs_arrival: bool, template: int | None) -> Trace:
    columns = _columns(table, template or 0)
    total = len(table.numbers)
    while faults := [fault for fault in _faults(columns, table, needs_arrival) if fault.bad.any()]:
        if not skip_bad_rows:
            raise ScenarioError(_message(min(faults, key=lambda fault: int(fault.bad.argmax())), columns, table, path))
        good = ~np.logical_or.reduce([fault.bad for fault in faults])
        columns = {name: column[good] for name, column in columns.items()}
    by_server = "input_len" in table.columns or template is not None
    return _trace(columns, table, total - len(columns["row"]), "server" if by_server else "client")


def _columns(table: Table, template: int) -> dict[str, NDArray[Any]]:
    """All columns as arrays: numbers as floats (nan where there is none), words as text.

    Where only the client counted the input, it is that and the tokens of the server's `template`.
    """
    count = len(table.numbers)
    columns: dict[str, NDArray[Any]] = {"row": np.arange(count)}
    columns["broken"] = np.isin(columns["row"], list(table.broken))
    for name in ("arrival", "input_len", "client_input_len", "output_len", "max_tokens", "priority", "think"):
        column = table.columns.get(name)
        columns[name] = np.full(count, np.nan) if column is None else to_floats(column)
        columns[f"{name} given"] = np.zeros(count, np.bool_) if column is None else _given(column)
    if "input_len" not in table.columns:
        columns["input_len"] = columns["client_input_len"] + template
    for name in ("class", "session"):
        words = table.columns.get(name, [""] * count)
        columns[name] = np.array(["" if word is None else str(word) for word in words], dtype=np.str_)
    return columns


def _given(column: Column) -> BoolArray:
    if isinstance(column, np.ndarray):
        return ~np.isnan(column)
    return np.array([field is not None and field != "" for field in column], dtype=np.bool_)


def _faults(columns: dict[str, NDArray[Any]], table: Table, needs_arrival: bool) -> list[_Fault]:
    given = {name: columns[f"{name} given"] for name in ("client_input_len", "max_tokens", "priority", "think")}
    counted = "input_len" if "input_len" in table.columns else "client_input_len"
    too_few = ~_whole(columns["max_tokens"], 1) | (columns["max_tokens"] < columns["output_len"])
    no_pause = ~(np.isfinite(columns["think"]) & (columns["think"] >= 0))
    parents = parents_of(columns["session"])
    shrinks = (parents >= 0) & (columns["input_len"] < columns["input_len"][parents] + columns["output_len"][parents])
    no_tokens = f"is not a whole number of tokens from 1 to {LONGEST}"
    faults = [
        _Fault(columns["broken"], "", ""),
        _Fault(given["client_input_len"] & ~_whole(columns["client_input_len"], 1), "client_input_len", no_tokens),
        _Fault(~_whole(columns["input_len"], 1), counted, no_tokens),
        _Fault(~_whole(columns["output_len"], 1), "output_len", no_tokens),
        _Fault(given["max_tokens"] & too_few, "max_tokens", "is not a whole number of at least output_len"),
        _Fault(given["priority"] & ~_whole(columns["priority"], -LONGEST), "priority", "is not a whole number"),
        _Fault(given["think"] & no_pause, "think", "is not a time in seconds >= 0"),
        _Fault(shrinks, counted, "is less than the prompt and answer of the session's previous turn"),
    ]
    if needs_arrival:
        earliest = 0.0 if table.own_clock else -np.inf
        waits = (parents >= 0) & given["think"]  # comes after its parent's answer, whenever that is
        faults += _arrival_faults(columns, earliest, waits, np.logical_or.reduce([fault.bad for fault in faults]))
    return faults


def _arrival_faults(
    columns: dict[str, NDArray[Any]], earliest: float, waits: BoolArray, bad: BoolArray
) -> list[_Fault]:
    """Faults of times; rows that are `bad` already say nothing about the order of the others."""
    arrival = columns["arrival"]
    missing = ~columns["arrival given"] & ~waits
    no_time = columns["arrival given"] & ~(np.isfinite(arrival) & (arrival >= earliest))
    clock = np.where(bad | missing | no_time | waits, np.nan, arrival)
    unsorted = clock < np.fmax.accumulate(clock)
    return [
        _Fault(missing, "arrival", "is not a time"),
        _Fault(no_time, "arrival", f"is not a time{' >= 0' if earliest == 0 else ''}"),
        _Fault(unsorted, "arrival", "is earlier than the row before; sort the file by time"),
    ]


def _whole(numbers: FloatArray, least: int) -> BoolArray:
    whole: BoolArray = (numbers == np.floor(numbers)) & (numbers >= least) & (numbers <= LONGEST)
    return whole


def parents_of(session: NDArray[np.str_]) -> IntArray:
    """Row of the previous turn of the same session; -1 for first turns and for rows without a session (empty text)."""
    parents = np.full(len(session), -1, dtype=np.int64)
    rows = np.flatnonzero(session != "")
    order = rows[np.argsort(session[rows], kind="stable")]
    same = session[order[1:]] == session[order[:-1]]
    parents[order[1:][same]] = order[:-1][same]
    return parents


def _message(fault: _Fault, columns: dict[str, NDArray[Any]], table: Table, path: Path) -> str:
    row = int(columns["row"][fault.bad.argmax()])
    what = _complaint(fault, row, table) if fault.column else f"the row {table.broken[row]}"
    return (
        f"{path}, {table.place} {table.numbers[row]}: {what}; "
        "correct it, or leave such rows out with workload.trace.skip_bad_rows: true"
    )


def _complaint(fault: _Fault, row: int, table: Table) -> str:
    name, fields = table.fields.get(fault.column, (fault.column, table.columns.get(fault.column)))
    value = None if fields is None else fields[row]
    return f"{name} is missing" if value is None or value == "" else f"{name} {value!r} {fault.why}"


def _trace(columns: dict[str, NDArray[Any]], table: Table, skipped_rows: int, input_counted_by: CountedBy) -> Trace:
    output_len = columns["output_len"].astype(np.int64)
    max_tokens = np.where(columns["max_tokens given"], columns["max_tokens"], output_len).astype(np.int64)
    priority = np.where(columns["priority given"], columns["priority"], 0).astype(np.int64)
    waits = (parents_of(columns["session"]) >= 0) & columns["think given"]
    by_client = columns["client_input_len given"]
    client_input_len = np.where(by_client, columns["client_input_len"], -1).astype(np.int64)
    return Trace(
        number=np.array(table.numbers, dtype=np.int64)[columns["row"]],
        arrival=np.where(waits, np.nan, columns["arrival"]),
        input_len=columns["input_len"].astype(np.int64),
        output_len=output_len,
        max_tokens=max_tokens,
        priority=priority if "priority" in table.columns else None,
        class_name=columns["class"],
        session=columns["session"],
        think=np.where(waits, columns["think"], np.nan),
        skipped_rows=skipped_rows,
        client_input_len=client_input_len if by_client.any() else None,
        input_counted_by=input_counted_by,
    )


def _retimed(trace: Trace, from_zero: bool, speedup: float) -> Trace:
    times = trace.arrival[np.isfinite(trace.arrival)]
    origin = times[0] if from_zero and len(times) else 0.0
    return replace(trace, arrival=(trace.arrival - origin) / speedup, think=trace.think / speedup)
