"""Rows of a trace judged: which can be requests, which of them first cannot, and in which order they come."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.table import Column, Table, to_floats
from simserve.workload.lengths import LONGEST
from simserve.workload.trace_report import printable

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]


class _Fault(NamedTuple):
    """Rows (a mask) that cannot be used because of one column."""

    bad: BoolArray
    column: str
    why: str


class Taken(NamedTuple):
    """Columns of the good rows, in order of time, how many of them were out of it, and the first row left out."""

    columns: Columns
    sorted_rows: int
    first_left_out: str
    zeros: int
    """Rows left out that have no tokens in or out and no other mark of failure."""


def good_rows(
    table: Table, path: Path, *, skip_bad_rows: bool, needs_arrival: bool, template: int, second: float
) -> Taken:
    """The good rows of a table, in order of time where `needs_arrival`; `second` is what a unit of its times is in s.

    `template` is what the server adds to a prompt that the client alone counted, in tokens.

    Raises:
        ScenarioError: a bad row and not `skip_bad_rows`, or no good one.
    """
    columns = _columns(table, template, second)
    first = (len(table.numbers), "")
    if table.failed:
        row = min(table.failed)
        first = row, f"{table.place} {table.numbers[row]}: {table.failed[row]}"
        columns = _only(columns, ~np.isin(columns["row"], list(table.failed)))
    zeros = int(np.count_nonzero((columns["input_len"] == 0) | (columns["output_len"] == 0)))
    while faults := [fault for fault in _faults(columns, table, needs_arrival) if fault.bad.any()]:
        worst = min(faults, key=lambda fault: int(fault.bad.argmax()))
        row = int(columns["row"][worst.bad.argmax()])
        what = f"{table.place} {table.numbers[row]}: {_complaint(worst, row, table)}"
        if not skip_bad_rows:
            raise ScenarioError(
                f"{path}, {printable(what)}; correct it, or leave such rows out with workload.trace.skip_bad_rows: true"
            )
        first = min(first, (row, what))
        columns = _only(columns, ~np.logical_or.reduce([fault.bad for fault in faults]))
    if not len(columns["row"]):
        raise ScenarioError(f"{path}: all of the {len(table.numbers)} rows are bad; the first: {printable(first[1])}")
    if not needs_arrival:  # another clock decides, and the file's order stands
        columns["arrival"] = np.full(len(columns["row"]), np.nan)
    columns, moved = _in_order(columns)
    return Taken(columns, moved, first[1], zeros)


def _only(columns: Columns, rows: NDArray[Any]) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _columns(table: Table, template: int, second: float) -> Columns:
    """All columns as arrays: numbers as floats (nan where there is none), times in seconds, words as text.

    Where only the client counted the input, it is that and the tokens of the server's `template`.
    """
    count = len(table.numbers)
    columns: Columns = {"row": np.arange(count)}
    columns["broken"] = np.isin(columns["row"], list(table.broken))
    for name in ("arrival", "input_len", "client_input_len", "output_len", "max_tokens", "priority", "think"):
        column = table.columns.get(name)
        columns[name] = np.full(count, np.nan) if column is None else to_floats(column)
        columns[f"{name} given"] = np.zeros(count, np.bool_) if column is None else _given(column)
    if second != 1:
        columns |= {name: columns[name] * second for name in ("arrival", "think")}
    if "input_len" not in table.columns:
        columns["input_len"] = columns["client_input_len"] + template
    for name in ("class", "session"):
        words = table.columns.get(name, [""] * count)
        columns[name] = np.array(["" if word is None else _word(word) for word in words], dtype=np.str_)
    heads = [False] * count if table.heads is None else [ids is not None for ids in table.heads.ids]
    columns["has head"] = np.array(heads, dtype=np.bool_)
    stops = [None] * count if table.heads is None else table.heads.ends
    columns["head end"] = np.array([max(each) if each else 0 for each in stops], dtype=np.int64)
    return columns


def _word(word: object) -> str:
    """Text without what no file and no terminal takes: half a character pair."""
    return str(word).encode("utf-8", "replace").decode("utf-8")


def _given(column: Column) -> BoolArray:
    if isinstance(column, np.ndarray):
        return ~np.isnan(column)
    return np.array([field is not None and field != "" for field in column], dtype=np.bool_)


def _faults(columns: Columns, table: Table, needs_arrival: bool) -> list[_Fault]:
    given = {name: columns[f"{name} given"] for name in ("client_input_len", "max_tokens", "priority", "think")}
    counted = "input_len" if "input_len" in table.columns else "client_input_len"
    too_few = ~_whole(columns["max_tokens"], 1) | (columns["max_tokens"] < columns["output_len"])
    no_pause = ~(np.isfinite(columns["think"]) & (columns["think"] >= 0))
    parents = parents_of(columns["session"])
    follows = (parents >= 0) & ~columns["has head"]
    shrinks = follows & (columns["input_len"] < columns["input_len"][parents] + columns["output_len"][parents])
    no_tokens = f"is not a whole number of tokens from 1 to {LONGEST}"
    faults = [
        _Fault(columns["broken"], "", ""),
        _Fault(given["client_input_len"] & ~_whole(columns["client_input_len"], 1), "client_input_len", no_tokens),
        _Fault(~_whole(columns["input_len"], 1), counted, no_tokens),
        _Fault(~_whole(columns["output_len"], 1), "output_len", no_tokens),
        _Fault(given["max_tokens"] & too_few, "max_tokens", "is not a whole number of at least output_len"),
        _Fault(given["priority"] & ~_whole(columns["priority"], -LONGEST), "priority", "is not a whole number"),
        _Fault(given["think"] & no_pause, "think", "is not a time in seconds >= 0"),
        _Fault(columns["head end"] > columns["input_len"], counted, "is less than the tokens of its prefix"),
        _Fault(shrinks, counted, "is less than the prompt and answer of the session's previous turn"),
    ]
    if needs_arrival:
        earliest = 0.0 if table.own_clock else -np.inf
        waits = (parents >= 0) & given["think"]  # comes after its parent's answer, whenever that is
        faults += _arrival_faults(columns, earliest, waits, parents)
    return faults


def _arrival_faults(columns: Columns, earliest: float, waits: BoolArray, parents: IntArray) -> list[_Fault]:
    """Faults of times. Rows may stand in any order, but not the turns of a session, which say what is in a prompt."""
    arrival = columns["arrival"]
    missing = ~columns["arrival given"] & ~waits
    no_time = columns["arrival given"] & ~(np.isfinite(arrival) & (arrival >= earliest))
    early = (parents >= 0) & ~waits & ~columns["has head"] & (arrival < arrival[parents])
    return [
        _Fault(missing, "arrival", "is not a time"),
        _Fault(no_time, "arrival", f"is not a time{' >= 0' if earliest == 0 else ''}"),
        _Fault(early, "arrival", "is earlier than the session's previous turn; put the turns of a session in order"),
    ]


def _in_order(columns: Columns) -> tuple[Columns, int]:
    """Rows in order of time, equal times as they stood; how many stood behind a later one.

    A turn that waits for an answer stays behind the row before it of its session; rows without times stay in place.
    """
    parents = parents_of(columns["session"])
    waits = (parents >= 0) & columns["think given"]
    clock = np.where(waits, np.nan, columns["arrival"])
    moved = int(np.count_nonzero(clock < np.fmax.accumulate(clock))) if len(clock) else 0
    if not moved:
        return columns, 0
    anchor = np.where(waits, parents, np.arange(len(parents)))
    while np.any(waits[anchor]):
        anchor = anchor[anchor]
    return _only(columns, np.argsort(clock[anchor], kind="stable")), moved


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


def _complaint(fault: _Fault, row: int, table: Table) -> str:
    if not fault.column:
        return f"the row {table.broken[row]}"
    name, fields = table.fields.get(fault.column, (fault.column, table.columns.get(fault.column)))
    value = None if fields is None else fields[row]
    if value is None or value == "":
        return f"{name} is missing"
    shown = value.item() if isinstance(value, np.generic) else value
    hint = " (a decimal comma? write a point)" if isinstance(shown, str) and _is_with_comma(shown) else ""
    return f"{name} {str(repr(shown))[:80]} {fault.why}{hint}"


def _is_with_comma(text: str) -> bool:
    whole, comma, rest = text.strip().partition(",")
    return bool(comma) and whole.lstrip("+-").isdecimal() and rest.isdecimal()
