"""The metrics there are, and which requests count: the definitions that every table, plot, page and objective shares.

An entry of `METRICS` is all that a metric needs to be in the summary, on the console, on the page and in its picture;
its formula stands above it. Times of the client (arrival, first token, last token) give `ttft`, `tpot` and `e2el` as
`vllm bench serve` measures them, with the queue inside; times of the engine give `queue_time` and `engine_ttft`.
Columns are in seconds, one value a request, nan where the request has none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.itl import gaps
from simserve.report.metric import Metric, PooledMetric, RequestMetric
from simserve.report.sample import FloatArray
from simserve.report.tokens import BoolArray, first_replica, token_times
from simserve.spec.result import COMPLETED, Result
from simserve.spec.ticks import TICKS_PER_SECOND

Columns = Mapping[str, NDArray[Any]]


def ttft(requests: Columns) -> FloatArray:
    """Time to first token: first token - arrival, both at the client; waiting for the engine is inside."""
    return _checked(requests["first_token"] - requests["arrival"])


def e2el(requests: Columns) -> FloatArray:
    """End-to-end latency: last token - arrival, both at the client."""
    return _checked(requests["finish"] - requests["arrival"])


def tpot(requests: Columns) -> FloatArray:
    """Time per output token after the first: (last - first) / (n - 1); an answer of one token has none."""
    later = np.where(requests["output_len"] > 1, requests["output_len"] - 1, np.nan)
    return _checked((requests["finish"] - requests["first_token"]) / later)


def queue_time(requests: Columns) -> FloatArray:
    """Time in the engine's queue: first scheduled - arrival at the engine."""
    return _checked(requests["scheduled"] - requests["engine_arrival"])


def kv_transfer(requests: Columns) -> FloatArray:
    """Time between the pools: a decode replica's asking for blocks of KV to their having come."""
    return _checked(requests["kv_transfer_end"] - requests["kv_transfer_start"])


def engine_ttft(result: Result) -> FloatArray:
    """Time to first token by the engine's own clock, without front end and delivery."""
    first_step = result.requests["first_step"]
    time = np.where(first_step >= 0, token_times(result, first_step, first_replica(result)) / TICKS_PER_SECOND, np.nan)
    return _checked(time - result.requests["engine_arrival"])


def _checked(latency: NDArray[Any]) -> FloatArray:
    assert not np.any(latency < 0), "a request was served before it came"
    return latency.astype(np.float64, copy=False)


_ENTRIES: tuple[Metric, ...] = (
    RequestMetric(
        key="ttft",
        name="TTFT",
        title="Time to First Token",
        text="arrival to first token, at the client, queue included",
        formula=lambda result: ttft(result.requests),
        in_vllm=True,
        queued=True,
    ),
    RequestMetric(
        key="tpot",
        name="TPOT",
        title="Time per Output Token (excl. 1st token)",
        text="(last - first token) / (tokens - 1), of each request with more than one token",
        formula=lambda result: tpot(result.requests),
        in_vllm=True,
    ),
    PooledMetric(
        key="itl",
        name="ITL",
        title="Inter-token Latency",
        text="all gaps between successive tokens, of all requests together; a preemption is one gap",
        formula=gaps,
        in_vllm=True,
    ),
    RequestMetric(
        key="e2el",
        name="E2EL",
        title="End-to-end Latency",
        text="arrival to last token, at the client",
        formula=lambda result: e2el(result.requests),
        in_vllm=True,
        queued=True,
    ),
    RequestMetric(
        key="queue_time",
        name="queue time",
        title="Time in the Queue",
        text="arrival at the engine to first being scheduled",
        formula=lambda result: queue_time(result.requests),
        queued=True,
    ),
    RequestMetric(
        key="engine_ttft",
        name="engine TTFT",
        title="Time to First Token at the Engine",
        text="the same as TTFT by the engine's clock: without front end and delivery",
        formula=engine_ttft,
        queued=True,
    ),
    RequestMetric(
        key="kv_transfer",
        name="KV transfer",
        title="KV Transfer between Pools",
        text="a decode replica's asking for KV to its being there; it is in the first ITL, never in TTFT",
        formula=lambda result: kv_transfer(result.requests),
        needs="kv_transfer_end",
    ),
)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ENTRIES}
"""Metric by key, in the order in which people read them: vLLM's first."""


def metrics_of(result: Result) -> list[Metric]:
    """Those that a run can have."""
    return [metric for metric in METRICS.values() if metric.needs in result.requests]


def metrics_in(summary: Mapping[str, Any]) -> list[Metric]:
    """Those that a summary holds."""
    return [metric for metric in METRICS.values() if f"n_{metric.key}" in summary]


def completed(requests: Columns, measured: BoolArray) -> BoolArray:
    """Measured requests that were answered to the end; only their latencies enter statistics."""
    done: BoolArray = measured & (requests["status"] == COMPLETED)
    return done
