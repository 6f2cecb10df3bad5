"""Results of `vllm bench serve` (0.32, vllm/benchmarks/serve.py) and of SGLang's `bench_serving` (0.5), which have the
same keys: one JSON object a run, several where a run was appended (`--append-result`, and SGLang always).

With details (`--save-detailed`, `--output-details`) they hold lists over the requests; without, totals alone.
"""

from typing import Any, Final

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.results import BenchmarkResult, arrivals_of, table_of
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options, Table, finite, first_of, plural

DETAILS: Final = ("start_times", "input_lens", "output_lens")
TOTALS: Final = ("completed", "total_input_tokens", "total_output_tokens")


def read_bench_serve(source: Source, options: Options) -> Table:
    """Read what was sent when, and how long the answers were.

    `start_times` is the client's own clock, whose origin means nothing. A request that failed has an entry in `errors`,
    an output length of 0 and perhaps a start time of 0.
    """
    results = [_result(source, number, found) for number, found in enumerate(source.documents)]
    return table_of(source, results, options, DETAILS)


def _result(source: Source, number: int, found: Any) -> BenchmarkResult:
    place = f"{source.path}, result {number}" if len(source.documents) > 1 else f"{source.path}"
    if not isinstance(found, dict):
        raise ScenarioError(f"{place}: is not the result of a benchmark, but {type(found).__name__}")
    if "input_lens" not in found and "output_lens" not in found:
        return _of_totals(place, found)
    lists = {name: found.get(name) for name in DETAILS[1:]}
    if found.get("start_times") is not None:
        lists["start_times"] = found["start_times"]
    count = len(found["input_lens"]) if isinstance(found.get("input_lens"), list) else 0
    lists["errors"] = found.get("errors") or [""] * count
    for name, entries in lists.items():
        if not isinstance(entries, list):
            raise ScenarioError(
                f"{place}: has no list `{name}`; only a benchmark with --save-detailed (SGLang --output-details) has it"
            )
        if len(entries) != count:
            raise ScenarioError(f"{place}: {len(entries)} `{name}` for {count} `input_lens`; the file is not whole")
    outputs, errors = lists["output_lens"] or [], lists["errors"] or []
    failures = [_failure(error) if error or output == 0 else "" for output, error in zip(outputs, errors, strict=True)]
    times = lists.get("start_times")
    notes = [] if times is not None else ["The result has no start_times: the requests have lengths and no times."]
    return BenchmarkResult(
        times,
        lists["input_lens"] or [],
        outputs,
        failures,
        label=_label(found),
        duration=finite(found.get("duration")) or 0.0,
        arrivals=_arrivals(found),
        notes=notes,
    )


def _of_totals(place: str, found: dict[str, Any]) -> BenchmarkResult:
    """As many requests as were completed, alike but for a token, so that their sum is the total that is stated."""
    completed, inputs, outputs = (finite(found.get(name)) for name in TOTALS)
    if not completed or not inputs or not outputs or not completed <= min(inputs, outputs, 1e7):
        raise ScenarioError(
            f"{place}: has neither lists over the requests nor totals; run the benchmark with --save-detailed"
        )
    count = int(completed)
    note = (
        f"The result holds no lengths of single requests (--save-detailed): each of its {plural(count, 'request')} gets"
        f" the mean, {inputs / count:.0f} tokens in and {outputs / count:.0f} out. Real lengths differ, and so will"
        " latencies."
    )
    return BenchmarkResult(
        None,
        _even(int(inputs), count),
        _even(int(outputs), count),
        [""] * count,
        label=_label(found),
        duration=finite(found.get("duration")) or 0.0,
        arrivals=_arrivals(found),
        notes=[note],
    )


def _even(total: int, count: int) -> list[int]:
    """Whole numbers that differ by at most one and add up to a total."""
    return [(row + 1) * total // count - row * total // count for row in range(count)]


def _label(found: dict[str, Any]) -> str:
    rate, users = found.get("request_rate"), found.get("max_concurrency")
    said = [f"rate {rate}" if rate is not None else "", f"{users} users" if users else ""]
    return ", ".join(word for word in said if word)


def _arrivals(found: dict[str, Any]) -> str | None:
    return arrivals_of(found.get("request_rate"), found.get("burstiness"), found.get("max_concurrency"))


def _failure(error: object) -> str:
    """Last line of the client's traceback."""
    lines = str(first_of(error, "")).strip().splitlines()
    return f"the request failed: {lines[-1][:200] if lines else 'no output'}"
