"""Results of benchmarks as traces: what a client sent when, how long the answers were, and which requests failed.

A file may hold several results, of a sweep for example: they are replayed one after the other, unless one is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Column, Options, Table, finite, plural, to_floats


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Requests of one run of a benchmark, in the order of the file.

    `starts` are None where the file has no times, and `arrivals` then says how the requests came, as far as it is
    known. `failures` are empty words for requests that were answered. `label` names the run for a person, `duration` is
    in seconds. `sessions` are empty words for requests of their own.
    """

    starts: Sequence[Any] | None
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    failures: Sequence[str]
    label: str = ""
    duration: float = 0.0
    arrivals: str | None = None
    sessions: Sequence[str] = ()
    notes: Sequence[str] = field(default=())


def table_of(
    source: Source,
    results: Sequence[BenchmarkResult],
    options: Options,
    names: tuple[str, str, str],
    *,
    counted: str = "client_input_len",
) -> Table:
    """The requests of results, in order of time; `names` are those of times, inputs and outputs in the file.

    Requests stand in the order of the data set, which concurrent clients need not keep. Input lengths are those that
    the client counted, unless `counted` says otherwise.
    """
    results, notes = _chosen(source, results, options.result)
    timed = all(result.starts is not None for result in results)
    starts, places = _one_after_another(results) if timed else ([], np.zeros(0))
    fields: dict[str, list[Any]] = {
        counted: [value for result in results for value in result.inputs],
        "output_len": [value for result in results for value in result.outputs],
    }
    failures = [word for result in results for word in result.failures]
    rows = range(len(failures))[options.rows]
    failed = {row: failures[row] for row in rows if failures[row]}
    order = [*rows]
    columns: dict[str, Column] = {}
    described: dict[str, tuple[str, Column]] = {}
    if timed:
        answered = np.array([row not in failed for row in rows], dtype=np.bool_)
        times = np.where(answered, places[options.rows], np.inf)
        order = [rows[place] for place in np.argsort(times, kind="stable").tolist()]
        columns["arrival"] = places[order]
        described["arrival"] = (names[0], [starts[row] for row in order])
    for (column, values), name in zip(fields.items(), names[1:], strict=True):
        columns[column] = [values[row] for row in order]
        described[column] = (name, columns[column])
    if any(any(result.sessions) for result in results):
        sessions = [name for result in results for name in result.sessions]
        columns["session"] = [sessions[row] for row in order]
    return Table(
        columns,
        order,
        fields=described,
        place="request",
        own_clock=False,
        failed={place: failed[row] for place, row in enumerate(order) if row in failed},
        notes=[*notes, *(note for result in results for note in result.notes)],
        arrivals=None if timed else results[0].arrivals,
    )


def _chosen(
    source: Source, results: Sequence[BenchmarkResult], wanted: int | None
) -> tuple[Sequence[BenchmarkResult], list[str]]:
    if not results:
        raise ScenarioError(f"{source.path}: holds no result of a benchmark")
    if wanted is not None:
        if wanted >= len(results):
            raise ScenarioError(
                f"{source.path}: holds {plural(len(results), 'result')}, 0 to {len(results) - 1}, not {wanted}"
            )
        return [results[wanted]], []
    if len(results) == 1:
        return results, []
    labels = ", ".join(f"{number}: {result.label or 'unnamed'}" for number, result in enumerate(results))
    return results, [
        f"The file holds {len(results)} results ({labels[:400]}), taken one after the other;"
        " workload.trace.result takes one."
    ]


def _one_after_another(results: Sequence[BenchmarkResult]) -> tuple[list[Any], Any]:
    """Times as the file has them, and in seconds with each result behind the one before it."""
    starts: list[Any] = []
    times = []
    begin = 0.0
    for result in results:
        assert result.starts is not None
        own = to_floats(result.starts)
        kept = [
            time for time, word in zip(own.tolist(), result.failures, strict=True) if not word and np.isfinite(time)
        ]
        first, last = (min(kept), max(kept)) if kept else (0.0, 0.0)
        times.append(own - first + begin)
        starts += result.starts
        begin += max(result.duration, last - first)
    return starts, np.concatenate(times)


def arrivals_of(rate: Any, burstiness: Any, concurrency: Any) -> str | None:
    """Arrivals that a benchmark was told to make, as a scenario states them; None where it does not say."""
    number, shape, cap = finite(rate), finite(burstiness), finite(concurrency)
    if number and number > 0:
        if shape is not None and shape not in {0, 1}:
            return f"{{process: gamma, rate: {number:g}, burstiness: {shape:g}}}"
        return f"{{process: poisson, rate: {number:g}}}"
    if cap:
        return f"{{process: closed_loop, users: {cap:g}}}"
    return "{process: all_at_once}" if rate == "inf" else None
