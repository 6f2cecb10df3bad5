"""A run over time: what was running, waiting and held, as means over equal stretches of time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.pools import usable_blocks
from simserve.report.sample import FloatArray
from simserve.report.tokens import output_tokens
from simserve.spec.result import Result
from simserve.spec.ticks import TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Series:
    """Means over the stretches between `edges` (seconds), summed over replicas; `kv_usage` is the mean share."""

    edges: FloatArray
    running: FloatArray
    waiting: FloatArray
    kv_usage: FloatArray | None
    """None where the number of blocks is not known."""
    output_rate: FloatArray
    """Output tokens a second, by the engine's clock."""
    prefill_rate: FloatArray
    """Prompt tokens a second that steps computed."""
    preemptions: NDArray[np.int64]
    """How many in each stretch."""


def series(result: Result, stretches: int = 300) -> Series | None:
    """The run cut into so many stretches of equal length; None without a step."""
    steps = result.steps
    if steps["step"].size == 0:
        return None
    arrival = result.requests["arrival"]
    begin = min(float(steps["start"].min()), float(np.nanmin(arrival, initial=np.inf)))
    edges = np.linspace(begin, float(steps["end"].max()), stretches + 1)
    width = edges[1] - edges[0]
    replicas = np.unique(steps["replica"])
    usable = usable_blocks(result.meta, steps["replica"])
    usage = None
    if usable is not None:
        usage = _mean(steps, 1 - steps["free_blocks"] / usable, edges) / replicas.size
    preempted = steps["preemptions"] > 0
    return Series(
        edges=edges,
        running=_mean(steps, steps["running"], edges),
        waiting=_mean(steps, steps["waiting"], edges),
        kv_usage=usage,
        output_rate=_tokens(result, edges) / width,
        prefill_rate=_sum(steps["end"], steps["prefill_tokens"], edges) / width,
        preemptions=_sum(steps["start"][preempted], steps["preemptions"][preempted], edges).astype(np.int64),
    )


def _mean(steps: dict[str, NDArray[Any]], value: NDArray[Any], edges: FloatArray) -> FloatArray:
    """Mean over time of a value that each step holds from its start to its end, and that is 0 between steps."""
    total = np.zeros(edges.size - 1)
    for replica in np.unique(steps["replica"]):
        rows = steps["replica"] == replica
        end = steps["end"][rows]
        start = np.maximum(steps["start"][rows], np.concatenate([[-np.inf], end[:-1]]))
        area = np.cumsum(value[rows] * (end - start))
        knots = np.column_stack([start, end]).ravel()
        reached = np.column_stack([np.concatenate([[0.0], area[:-1]]), area]).ravel()
        total += np.diff(np.interp(edges, knots, reached))
    mean: FloatArray = total / np.diff(edges)
    return mean


def _tokens(result: Result, edges: FloatArray) -> FloatArray:
    """Output tokens that came in each stretch."""
    everyone = np.ones(result.requests["arrival"].size, np.bool_)
    counts = np.zeros(edges.size - 1)
    for time, tokens in output_tokens(result, everyone):
        counts += _sum(time / TICKS_PER_SECOND, tokens, edges)
    return counts


def _sum(time: NDArray[Any], weight: NDArray[Any], edges: FloatArray) -> FloatArray:
    stretch = np.clip(((time - edges[0]) / (edges[1] - edges[0])).astype(np.int64), 0, edges.size - 2)
    return np.bincount(stretch, weights=weight, minlength=edges.size - 1).astype(np.float64)
