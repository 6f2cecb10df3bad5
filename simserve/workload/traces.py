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
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.workload.formats.registry import read_table, recognised
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import SECONDS, Options, Table, plural
from simserve.workload.prefix_ids import PrefixIds, prefix_ids
from simserve.workload.suspicions import suspicions
from simserve.workload.trace_checks import Columns, Taken, good_rows, parents_of
from simserve.workload.trace_report import TraceReport

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
CountedBy = Literal["server", "client"]


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
    taken = good_rows(
        table,
        path,
        skip_bad_rows=skip_bad_rows,
        needs_arrival=_wants_times(table, path, needs_arrival),
        template=template or 0,
        second=SECONDS[options.time_unit or table.unit],
    )
    by_server = "input_len" in table.columns or template is not None
    trace = _trace(taken.columns, table, len(table.numbers) - len(taken.columns["row"]), by_server)
    report = _report(trace, table, taken, form, is_recognised=format is None)
    if taken.sorted_rows and (offset or options.rows.stop is not None):
        report = replace(report, notes=(*report.notes, "limit and offset count rows in the order of the file."))
    trace = replace(trace, report=report)
    return _retimed(trace, path, from_zero=offset > 0 or not table.own_clock, pace=pace)


def _wants_times(table: Table, path: Path, needs_arrival: bool | None) -> bool:
    has_times = "arrival" in table.columns
    if needs_arrival and not has_times:
        beside = table.arrivals or "{process: poisson, rate: 8}"
        told = "the benchmark's own" if table.arrivals else "for example"
        raise ScenarioError(f"{path}: has no arrival times: state workload.arrivals beside the trace, {told} {beside}")
    return has_times if needs_arrival is None else needs_arrival


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


def _report(trace: Trace, table: Table, taken: Taken, form: str, *, is_recognised: bool) -> TraceReport:
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
        notes=(*table.notes, *_of_zeros(taken.zeros), *odd),
    )


def _of_zeros(zeros: int) -> list[str]:
    return [f"{plural(zeros, 'row')} of 0 tokens among those left out: requests that failed?"] if zeros else []


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
