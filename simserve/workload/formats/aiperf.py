"""`profile_export.jsonl` of AIPerf (0.13): one request a line, `metadata` with times in ns and `metrics` with units.

Requests of the warm-up are left out. Those of one conversation become its turns where the prompts grow.
"""

import math
from typing import Any, Final

from simserve.workload.formats.burstgpt import growing_sessions
from simserve.workload.formats.columns import check_rows
from simserve.workload.formats.results import BenchmarkResult, table_of
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options, Table, dig, finite, first_of, plural

_NAMES: Final = ("request_start_ns", "input_sequence_length", "output_sequence_length")


def read_aiperf(source: Source, options: Options) -> Table:
    """Read the requests of the measured phase, in order of time."""
    found: list[tuple[float, dict[str, Any], str]] = []
    warm = 0
    for number, record, fault in source.records():
        if dig(record, "metadata", "benchmark_phase") == "warmup":
            warm += 1
            continue
        start = finite(dig(record, "metadata", "request_start_ns"))
        found.append((math.nan if start is None else start * 1e-9, record, fault and f"line {number} {fault}"))
        check_rows(len(found), source)
    found.sort(key=lambda each: math.inf if math.isnan(each[0]) else each[0])
    records = [record for _, record, _ in found]
    inputs = [_metric(record, _NAMES[1]) for record in records]
    outputs = [first_of(_metric(record, _NAMES[2]), _metric(record, "output_token_count")) for record in records]
    failures = [fault or _failure(record, output) for (_, record, fault), output in zip(found, outputs, strict=True)]
    sessions, notes = growing_sessions(
        [str(first_of(dig(record, "metadata", "x_correlation_id"), "")) for record in records],
        [first_of(length, 0) for length in inputs],
        [first_of(length, 0) for length in outputs],
        [not failure for failure in failures],
    )
    if warm:
        notes.append(f"{plural(warm, 'request')} of the warm-up left out.")
    result = BenchmarkResult(
        [start for start, _, _ in found],
        inputs,
        outputs,
        failures,
        sessions=sessions,
        notes=notes,
    )
    return table_of(source, [result], options, _NAMES)


def _metric(record: dict[str, Any], name: str) -> Any:
    found = dig(record, "metrics", name)
    return found.get("value") if isinstance(found, dict) else found


def _failure(record: dict[str, Any], output: object) -> str:
    error = record.get("error")
    if error:
        return f"the request failed: {str(first_of(dig(error, 'message'), dig(error, 'type'), error))[:200]}"
    if dig(record, "metadata", "was_cancelled"):
        return "the request was cancelled"
    return "the request failed: no output" if not output else ""
