"""Latencies of each request, and which requests count: the definitions that every table, plot and page shares.

Times of the client (arrival, first token, last token) give `ttft`, `tpot` and `e2el` as `vllm bench serve` measures
them, with the queue inside; times of the engine give `queue_time` and `engine_ttft`. Columns are in seconds, one value
a request, nan where the request has none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.tokens import BoolArray, first_replica, token_times
from simserve.spec.result import COMPLETED, Result
from simserve.spec.ticks import TICKS_PER_SECOND

FloatArray = NDArray[np.float64]
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


def engine_ttft(result: Result) -> FloatArray:
    """Time to first token by the engine's own clock, without front end and delivery."""
    first_step = result.requests["first_step"]
    time = np.where(first_step >= 0, token_times(result, first_step, first_replica(result)) / TICKS_PER_SECOND, np.nan)
    return _checked(time - result.requests["engine_arrival"])


def _checked(latency: NDArray[Any]) -> FloatArray:
    assert not np.any(latency < 0), "a request was served before it came"
    return latency.astype(np.float64, copy=False)


LATENCIES = {"ttft": ttft, "tpot": tpot, "e2el": e2el, "queue_time": queue_time}


def completed(requests: Columns, measured: BoolArray) -> BoolArray:
    """Measured requests that were answered to the end; only their latencies enter statistics."""
    done: BoolArray = measured & (requests["status"] == COMPLETED)
    return done
