"""The result as text: the table that `vllm bench serve` prints, then a block of ours in the same style."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simserve.report.counted import counted_by
from simserve.report.metric import Metric
from simserve.report.metrics import METRICS, metrics_in
from simserve.report.pools import transfer_lines
from simserve.report.replayed import recognised_as, replay_notes
from simserve.report.speculation import speculation_lines

WIDTH = 50
LABEL = 40
PERCENTILES = (90, 95, 99)
MISSING = "n/a"

Value = int | float | str | None


def benchmark_table(summary: Mapping[str, Any], percentiles: Sequence[int] = PERCENTILES) -> str:
    """The console output of a run: vLLM's lines (0.32, benchmarks/serve.py) with these percentiles, then ours.

    A statistic that does not exist is `n/a`.
    """
    return "\n".join([*_vllm_lines(summary, percentiles), *_our_lines(summary), "=" * WIDTH])


def _vllm_lines(summary: Mapping[str, Any], percentiles: Sequence[int]) -> Iterator[str]:
    yield _title(" Serving Benchmark Result ", "=")
    yield _line("Successful requests:", summary["completed"])
    yield _line("Failed requests:", summary["failed"])
    if summary["max_concurrency"] is not None:
        yield _line("Maximum request concurrency:", summary["max_concurrency"])
    if summary["request_rate"] not in ("inf", None):
        yield _line("Request rate configured (RPS):", float(summary["request_rate"]))
    yield _line("Benchmark duration (s):", summary["duration"])
    yield _line("Total input tokens:", summary["total_input_tokens"])
    yield _line("Total generated tokens:", summary["total_output_tokens"])
    yield _line("Request throughput (req/s):", summary["request_throughput"])
    if summary["request_goodput"] is not None:
        yield _line("Request goodput (req/s):", summary["request_goodput"])
    yield _line("Output token throughput (tok/s):", summary["output_throughput"])
    yield _line("Peak output token throughput (tok/s):", summary["max_output_tokens_per_s"])
    yield _line("Peak concurrent requests:", float(summary["max_concurrent_requests"]))
    yield _line("Total token throughput (tok/s):", summary["total_token_throughput"])
    for metric in metrics_in(summary):
        if metric.in_vllm:
            yield _title(metric.title, "-")
            yield from _metric_lines(metric, summary, ("mean", "median", *(f"p{number}" for number in percentiles)))
    if lines := list(transfer_lines(summary)):
        yield _title("Transfer between Pools", "-")
        yield from (_line(label, value) for label, value in lines)
    if lines := list(speculation_lines(summary)):
        yield _title("Speculative Decoding", "-")
        yield from (_line(label, value) for label, value in lines)
    yield "=" * WIDTH


def _our_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    yield _title(" Simulation ", "=")
    yield _line("Saturation:", summary["saturation"])
    if summary["offered_rate"] is not None:
        yield _line("Request rate offered (RPS):", summary["offered_rate"])
    yield from _trace_lines(summary)
    if counted := counted_by(summary):
        yield from _text("Input tokens counted by:", counted)
    if summary["window"]["warmup"]:
        yield _line("Requests left out as warm-up:", summary["window"]["excluded_requests"])
    if summary["statuses"]["unfinished"]:
        yield _line("Unfinished requests:", summary["statuses"]["unfinished"])
    yield from _attempt_lines(summary)
    for metric in metrics_in(summary):
        if not metric.in_vllm:
            yield from _metric_lines(metric, summary, ("mean", "p95"))
    yield _line("Preemptions:", summary["num_preemptions"])
    if summary.get("num_swaps"):
        yield _line("Swapped out of them:", summary["num_swaps"])
    if summary.get("num_thrashings"):
        yield _line("Preempted again without progress:", summary["num_thrashings"])
    yield _line("Prefix cache hit rate (%):", _percent(summary["prefix_cache_hit_rate"]))
    yield _line("Peak KV cache usage (%):", _percent(summary["kv_cache_usage_peak"]))
    if summary.get("extensions"):
        yield _line("Reserved KV cache left empty (%):", _percent(summary["kv_cache_waste"]))
    yield _line("Output tokens per s and GPU:", summary["tokens_per_s_per_gpu"])
    yield _line("Output tokens per s and user:", summary["tokens_per_s_per_user"])
    if summary["price_per_gpu_hour"] is not None:
        yield _line("Cost per million output tokens ($):", summary["cost_per_million_output_tokens"])
    yield from _class_lines(summary)
    yield from _objective_lines(summary)
    yield from textwrap.wrap(f"Trust: {summary['trust']}", WIDTH, break_on_hyphens=False)
    for note in summary.get("notes", ()):
        yield from textwrap.wrap(f"Note: {note}", WIDTH, break_on_hyphens=False)


def _trace_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    if form := recognised_as(summary):
        yield from _text("Trace recognised as:", form)
    if left_out := summary.get("trace", {}).get("left_out"):
        yield _line("Rows of the trace left out:", left_out)
    for note in replay_notes(summary):
        yield from textwrap.wrap(note, WIDTH, break_on_hyphens=False)


def _attempt_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    for why, number in summary.get("refused", {}).items():
        if number:
            yield _line(f"Refused, {why.replace('_', ' ')}:", number)
    attempts = summary.get("attempts")
    if attempts is not None:
        yield _line("Requests given up after a timeout:", summary["statuses"]["timed_out"])
        yield _line("Attempts:", attempts["count"])
        yield _line("Attempts that timed out:", attempts["statuses"]["timed_out"])
        yield _line("Output tokens generated in vain:", attempts["wasted_output_tokens"])


def _class_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    for name, found in summary["classes"].items():
        yield _title(f" Class {name} ", "-")
        yield _line("Successful requests:", found["completed"])
        yield from _metric_lines(METRICS["ttft"], found, ("mean", "p95"))
        yield from _metric_lines(METRICS["tpot"], found, ("p95",))
        yield _line("Output token throughput (tok/s):", found["output_throughput"])


def _objective_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    for verdict in summary["slo"]:
        whom = "" if len(summary["slo"]) == 1 else f" of {', '.join(verdict['classes'])}"
        yield _title(f" Objective{whom} ", "-")
        yield _line("Requests within all limits (%):", _percent(verdict["attainment"]))
        for key, limit in verdict["limits"].items():
            label = f"P{verdict['percentile']:g} {METRICS[key].name} <= {limit['limit_ms']:g} ms:"
            yield _line(label, "met" if limit["met"] else "missed")


def _metric_lines(metric: Metric, found: Mapping[str, Any], statistics: Sequence[str]) -> Iterator[str]:
    for statistic in statistics:
        yield _line(f"{metric.label_of(statistic.capitalize())}:", found[metric.key_of(statistic)])


def _title(text: str, fill: str) -> str:
    return f"{text:{fill}^{WIDTH}}"


def _line(label: str, value: Value) -> str:
    shown = MISSING if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{label:<{LABEL}} {shown:<10}"


def _text(label: str, words: str) -> Iterator[str]:
    """A line, or several where the words are too long for its second column."""
    if len(words) <= WIDTH - LABEL:
        yield _line(label, words)
    else:
        yield from textwrap.wrap(f"{label} {words}", WIDTH, break_on_hyphens=False)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
