"""Whether the fleet kept up with what arrived: the first thing to know before reading a latency."""

import numpy as np

from simserve.report.metrics import Columns, tpot, ttft
from simserve.report.pools import waits_for_blocks
from simserve.report.sample import FloatArray
from simserve.report.tokens import BoolArray
from simserve.spec.result import COMPLETED, REJECTED

STABLE, BACKLOGGED, OVERLOADED = "stable", "backlogged", "overloaded"

MEANING = {
    STABLE: "The fleet kept up: over the run as a whole the queue did not grow.",
    BACKLOGGED: "The queue grew over the run: a longer run of the same load would show worse latencies.",
    OVERLOADED: "Arrivals outran completions: latencies grow for as long as the load lasts, and say little else.",
}

LEAST_EXCESS = 0.1
"""Overloaded: at least this share of the arrivals of the second half was not matched by completions."""
GROWTH = 2.0
"""Backlogged: the mean queue of the second half is more than this many times that of the first."""


def saturation(
    requests: Columns, measured: BoolArray, end: float, replicas: int, *, gone: FloatArray | None = None
) -> str | None:
    """Judge by the time between first and last arrival, in two halves; None where nothing was completed.

    *overloaded*: in the second half, arrivals exceed completions by a tenth and by three standard deviations of a
    Poisson count, and the first half lasted twice as long as an unhindered request. *backlogged*: on the mean,
    more than one request a replica waited in the second half, and more than twice as many as in the first. Requests
    that all arrive at once are backlogged if on the mean more than one a replica waited. Nobody waits who is `gone`
    (seconds; nan: not yet).
    """
    gone = requests["finish"] if gone is None else gone
    done = measured & (requests["status"] == COMPLETED)
    if not done.any():
        return None
    arrival = requests["arrival"][measured]
    first, last = float(arrival.min()), float(arrival.max())
    if first == last:
        return BACKLOGGED if _mean_waiting(requests, measured, gone, first, end) > replicas else STABLE
    middle = (first + last) / 2
    came = int(np.sum(arrival > middle))
    finish = requests["finish"][done]
    excess = came - int(np.sum((finish > middle) & (finish <= last)))
    judged = middle - first >= 2 * _unhindered(requests, done)
    if judged and excess > max(LEAST_EXCESS * came, 3 * came**0.5):
        return OVERLOADED
    before = _mean_waiting(requests, measured, gone, first, middle)
    after = _mean_waiting(requests, measured, gone, middle, last)
    return BACKLOGGED if after > max(replicas, GROWTH * before) else STABLE


def _unhindered(requests: Columns, done: BoolArray) -> float:
    """Latency of a mean request at the best speed seen: what it takes before a queue or a large batch has built up."""
    speed = np.nanmin(tpot(requests), initial=np.inf, where=done)
    later_tokens = float(np.mean(requests["output_len"][done])) - 1
    return float(np.min(ttft(requests)[done])) + (later_tokens * float(speed) if later_tokens > 0 else 0.0)


def _mean_waiting(requests: Columns, measured: BoolArray, gone: FloatArray, start: float, end: float) -> float:
    """Mean over time of the number of requests that have arrived and not yet been scheduled; between pools, that have
    their first token and no blocks yet where they go on.
    """
    if end <= start:
        return 0.0
    rows = measured & (requests["status"] != REJECTED)
    left: FloatArray = np.where(
        np.isnan(requests["scheduled"]), np.nan_to_num(gone, nan=np.inf), requests["scheduled"]
    )[rows]
    waited = np.minimum(left, end) - np.maximum(requests["arrival"][rows], start)
    total = np.maximum(waited, 0.0).sum()
    if (again := waits_for_blocks(requests)) is not None:
        came, went = again
        total += np.nansum(np.maximum(np.minimum(went, end) - np.maximum(came, start), 0.0)[rows])
    return float(total / (end - start))
