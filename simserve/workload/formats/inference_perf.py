"""`per_request_lifecycle_metrics.json` of inference-perf (0.2 to 0.7): a list, one object a request, times in s."""

from typing import Any, Final

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.results import BenchmarkResult, table_of
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options, Table, dig, first_of

_NAMES: Final = ("start_time", "input_tokens", "output_tokens")


def read_inference_perf(source: Source, options: Options) -> Table:
    """Read all requests; those with an error failed."""
    requests = source.documents[0]
    if not isinstance(requests, list):
        raise ScenarioError(f"{source.path}: is not a list of requests; expected per_request_lifecycle_metrics.json")
    outputs = [_tokens(each, "output_tokens", "response_metrics") for each in requests]
    result = BenchmarkResult(
        [dig(each, "start_time") for each in requests],
        [first_of(_tokens(each, "input_tokens", "request_metrics"), _text_tokens(each)) for each in requests],
        outputs,
        [_failure(each, output) for each, output in zip(requests, outputs, strict=True)],
    )
    return table_of(source, [result], options, _NAMES)


def _tokens(request: Any, name: str, metrics: str) -> Any:
    info = dig(request, "info")
    return first_of(dig(request, "computed_metrics", name), dig(info, name), dig(info, metrics, name))


def _text_tokens(request: Any) -> Any:
    return dig(request, "info", "request_metrics", "text", "input_tokens")


def _failure(request: Any, output: object) -> str:
    if error := dig(request, "error"):
        return f"the request failed: {str(first_of(dig(error, 'error_msg'), dig(error, 'error_type'), error))[:200]}"
    return "" if output else "the request failed: no output"
