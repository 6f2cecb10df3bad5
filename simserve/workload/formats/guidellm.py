"""`benchmarks.json` of GuideLLM (0.3 to 0.8): benchmarks, each with its requests by outcome."""

from collections.abc import Iterator
from typing import Any, Final

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.results import BenchmarkResult, table_of
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options, Table, dig, first_of

_OUTCOMES: Final = ("successful", "incomplete", "errored")
_NAMES: Final = ("request_start_time", "prompt_tokens", "output_tokens")


def read_guidellm(source: Source, options: Options) -> Table:
    """Read the requests of all benchmarks; those that were not answered to the end failed. Tokens are the server's."""
    document = source.documents[0]
    benchmarks = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(benchmarks, list) or not benchmarks:
        raise ScenarioError(f"{source.path}: has no `benchmarks`; expected GuideLLM's benchmarks.json")
    results = [_result(source, number, each) for number, each in enumerate(benchmarks)]
    return table_of(source, results, options, _NAMES, counted="input_len")


def _result(source: Source, number: int, benchmark: Any) -> BenchmarkResult:
    requests = dig(benchmark, "requests")
    if not isinstance(requests, dict) or not any(isinstance(requests.get(name), list) for name in _OUTCOMES):
        raise ScenarioError(
            f"{source.path}, benchmark {number}: has no `requests`; write the file with the requests in it, as"
            " GuideLLM's --outputs json does"
        )
    rows = list(_requests(requests))
    strategy = first_of(
        dig(benchmark, "config", "strategy"),
        dig(benchmark, "args", "strategy"),
        dig(benchmark, "scheduler", "strategy"),
    )
    rate = first_of(dig(strategy, "rate"), dig(strategy, "streams"), "")
    return BenchmarkResult(
        [_start(each) for each, _ in rows],
        [_tokens(each, "prompt_tokens", "input_metrics") for each, _ in rows],
        [_tokens(each, "output_tokens", "output_metrics") for each, _ in rows],
        [failure for _, failure in rows],
        label=f"{first_of(dig(strategy, 'type_'), 'benchmark')} {rate}".strip(),
    )


def _requests(requests: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    for outcome in _OUTCOMES:
        listed = requests.get(outcome)
        for each in listed if isinstance(listed, list) else []:
            yield each, "" if outcome == "successful" else f"the request is {outcome}"


def _start(request: Any) -> Any:
    timings = dig(request, "info", "timings")
    return first_of(
        dig(request, "request_start_time"),
        dig(timings, "request_start"),
        dig(request, "scheduler_info", "request_timings", "request_start"),
        dig(request, "start_time"),
    )


def _tokens(request: Any, name: str, metrics: str) -> Any:
    text = dig(request, metrics, "text_tokens")
    return first_of(dig(request, name), dig(request, metrics, "total_tokens"), text)
