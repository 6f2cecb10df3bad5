"""Traces: recorded traffic as requests. Reads a file of any known format and checks every value.

A row that cannot be a request (no time, a negative length, an answer of no tokens) is an error that names file and
line, or, on request, left out and counted. Rows of requests that failed where they were recorded are always left out,
and counted. Rows out of order are put in order, unless turns of a session would change places. What became of the file
is told by a `TraceReport`.

Our own format, CSV or JSON lines, has the columns `arrival` (s), `input_len`, `output_len` and, where wanted,
`client_input_len`, `max_tokens`, `class`, `priority`, `session` and `think` (s). The rows of one session are the turns
of a chat, in order: the prompt of each holds the previous prompt and its answer. With `think` a turn comes that long
after the previous answer, and needs no `arrival`. In a row that says itself how its prompt begins (`prefix`, block
hashes) a session decides nothing but that time.

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
from simserve.workload.formats.registry import read_table, recognised
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import SECONDS, Column, Options, Table, to_floats
from simserve.workload.lengths import LONGEST
from simserve.workload.prefix_ids import PrefixIds, prefix_ids
from simserve.workload.suspicions import suspicions
from simserve.workload.trace_report import TraceReport

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
CountedBy = Literal["server", "client"]
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of a trace, one row each, in order of time as far as they have times.

    `number` is the line of the file a row came from (the index of the request where the file has no lines). `arrival`
    counts from the start of the run, nan where there is none; `think` is nan where there is none; `class_name` and
    `session` are empty text where there is none; `priority` is None where the trace has none. `input_len` is what is
    computed, and `input_counted_by` says whose count that is. `client_input_len` is what the client counted, -1 in a
    row without it, None where no row has it. `prefix` says how prompts begin, None where no row says it.
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
    prefix: PrefixIds | None = None
    report: TraceReport | None = None
    arrivals: str | None = None
    """Where there are no times but the file says how requests came: those arrivals as a scenario states them."""

    def __len__(self) -> int:
        return len(self.input_len)

    @property
    def has_times(self) -> bool:
        """Whether every request knows when it comes, or what it comes after."""
        return bool(np.all(np.isfinite(self.arrival) | np.isfinite(self.think)))


def read_trace(
    path: Path,
    format: TraceFormat | None = None,
    *,
    limit: int | None = None,
    offset: int = 0,
    speedup: float = 1.0,
    rate: float | None = None,
    skip_bad_rows: bool = False,
    needs_arrival: bool | None = True,
    chat_template_tokens: int | None = None,
    options: Options | None = None,
) -> Trace:
    """Read `limit` rows of a trace after the first `offset`, its clock running `speedup` times faster.

    Without a `format` it is recognised. With a `rate` (requests/s) the clock runs so fast that this is the mean rate;
    gaps keep their proportions, and so their burstiness. Formats whose clock has an origin of its own, and all after an
    `offset`, start at time 0 with the first request that is kept. `needs_arrival` is false where an arrival process
    re-times the rows, and None where times are wanted as far as the file has any. `chat_template_tokens` are what the
    server adds to every prompt that the client counted (chat template, BOS token), None where that is not known.

    Raises:
        ScenarioError: no such file, no known format, no rows, a bad row and not `skip_bad_rows`, turns out of order, or
            `chat_template_tokens` for prompts that the server counted.
    """
    try:
        return _read(
            Source(path),
            format,
            options=replace(options or Options(), rows=slice(offset, None if limit is None else offset + limit)),
            skip_bad_rows=skip_bad_rows,
            needs_arrival=needs_arrival,
            template=chat_template_tokens,
            pace=_Pace(speedup, rate),
        )
    except (RecursionError, MemoryError) as error:
        raise ScenarioError(f"{path}: is too deep or too large to be read: {error or type(error).__name__}") from None


class _Pace(NamedTuple):
    """How the clock of a trace runs: so many times faster, or at this mean rate."""

    speedup: float
    rate: float | None


def _read(
    source: Source,
    format: TraceFormat | None,
    *,
    options: Options,
    skip_bad_rows: bool,
    needs_arrival: bool | None,
    template: int | None,
    pace: _Pace,
) -> Trace:
    path, offset = source.path, options.rows.start
    form = format or recognised(source)
    table = read_table(source, form, options)
    if not table.numbers:
        raise ScenarioError(f"{path}: no rows after offset {offset}" if offset else f"{path}: has no rows")
    if template is not None and "input_len" in table.columns:
        name, _ = table.fields.get("input_len", ("input_len", ()))
        raise ScenarioError(
            f"{path}: {name} is the server's count, its chat template inside: take chat_template_tokens out"
        )
    times = _wants_times(table, path, needs_arrival)
    second = SECONDS[options.time_unit or table.unit]
    taken = _checked(table, path, skip_bad_rows, times, template or 0, second)
    by_server = "input_len" in table.columns or template is not None
    trace = _trace(taken.columns, table, len(table.numbers) - len(taken.columns["row"]), by_server)
    report = _report(trace, table, taken, form, is_recognised=format is None)
    trace = replace(trace, report=report)
    return _retimed(trace, path, from_zero=offset > 0 or not table.own_clock, pace=pace)


def _wants_times(table: Table, path: Path, needs_arrival: bool | None) -> bool:
    has_times = "arrival" in table.columns
    if needs_arrival and not has_times:
        beside = table.arrivals or "{process: poisson, rate: 8}"
        told = "the benchmark's own" if table.arrivals else "for example"
        raise ScenarioError(f"{path}: has no arrival times: state workload.arrivals beside the trace, {told} {beside}")
    return has_times if needs_arrival is None else needs_arrival


class _Fault(NamedTuple):
    """Rows (a mask) that cannot be used because of one column."""

    bad: BoolArray
    column: str
    why: str


class _Taken(NamedTuple):
    """Columns of the good rows, in order of time, how many of them were out of it, and the first row left out."""

    columns: Columns
    sorted_rows: int
    first_left_out: str


def _checked(  # noqa: PLR0917 (what a reading is made of)
    table: Table, path: Path, skip_bad_rows: bool, needs_arrival: bool, template: int, second: float
) -> _Taken:
    columns = _columns(table, template, second)
    first = (len(table.numbers), "")
    if table.failed:
        row = min(table.failed)
        first = row, f"{table.place} {table.numbers[row]}: {table.failed[row]}"
        columns = _only(columns, ~np.isin(columns["row"], list(table.failed)))
    while faults := [fault for fault in _faults(columns, table, needs_arrival) if fault.bad.any()]:
        worst = min(faults, key=lambda fault: int(fault.bad.argmax()))
        row = int(columns["row"][worst.bad.argmax()])
        what = f"{table.place} {table.numbers[row]}: {_complaint(worst, row, table)}"
        if not skip_bad_rows:
            raise ScenarioError(
                f"{path}, {what}; correct it, or leave such rows out with workload.trace.skip_bad_rows: true"
            )
        first = min(first, (row, what))
        columns = _only(columns, ~np.logical_or.reduce([fault.bad for fault in faults]))
    if not len(columns["row"]):
        raise ScenarioError(f"{path}: all of the {len(table.numbers)} rows are bad; the first: {first[1]}")
    if not needs_arrival:  # another clock decides, and the file's order stands
        columns["arrival"] = np.full(len(columns["row"]), np.nan)
    columns, moved = _in_order(columns)
    return _Taken(columns, moved, first[1])


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


def _trace(columns: Columns, table: Table, skipped_rows: int, by_server: bool) -> Trace:
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
        input_counted_by="server" if by_server else "client",
        prefix=None if table.heads is None else prefix_ids(table.heads).take(columns["row"]),
        arrivals=table.arrivals,
    )


def _report(trace: Trace, table: Table, taken: _Taken, form: str, *, is_recognised: bool) -> TraceReport:
    odd = suspicions(trace.arrival, trace.input_len, trace.output_len, trace.session)
    return TraceReport(
        format=form,
        is_recognised=is_recognised,
        rows=len(table.numbers),
        requests=len(trace),
        left_out=trace.skipped_rows,
        first_left_out=taken.first_left_out,
        sorted_rows=taken.sorted_rows,
        ignored_columns=tuple(table.ignored),
        notes=(*table.notes, *odd),
    )


def _retimed(trace: Trace, path: Path, *, from_zero: bool, pace: _Pace) -> Trace:
    times = trace.arrival[np.isfinite(trace.arrival)]
    origin = times[0] if from_zero and len(times) else 0.0
    speedup = pace.speedup if pace.rate is None else pace.rate / mean_rate(trace, path)
    return replace(trace, arrival=(trace.arrival - origin) / speedup, think=trace.think / speedup)


def mean_rate(trace: Trace, path: Path) -> float:
    """Requests per second: those after the first over the time they took.

    Raises:
        ScenarioError: all requests come at once, or there are no times.
    """
    times = trace.arrival[np.isfinite(trace.arrival)]
    if len(times) < 2 or times[-1] <= times[0]:
        raise ScenarioError(f"{path}: has no rate that could be scaled: fewer than two different times")
    return float((len(times) - 1) / (times[-1] - times[0]))
