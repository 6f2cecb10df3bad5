"""Where the GPU's time of a run went, by group of operators, from the step log alone.

Vectorised over the rows of the log after the run, so that the run itself pays nothing for it.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.cost.curve import IntArray
from simserve.cost.forward import Forward
from simserve.cost.launch import GraphPolicy
from simserve.cost.layer_time import LayerTime
from simserve.spec.ticks import to_seconds

_ROWS = 2**17
"""Rows of the log that are worked through at once: their copies as integers stay small beside the log."""

_FIELDS = ("prefill_tokens", "decodes", "context_tokens", "steps")


def step_time_breakdown(forward: Forward, policy: GraphPolicy, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Seconds of each group of operators, and of the `host` where the GPU waited for it, summed over a step log.

    `steps` has columns replica, prefill_tokens, decodes, context_tokens (of the first step of a row), steps, start,
    end, gpu_time and cpu_time, the rows of a replica one after the other. All groups but `host` add up to the GPU's
    time. Chunks are not in the log, so `attention_prefill` is what the other groups leave of the GPU's time, what
    decodes lose beside chunks included, and a prompt step is taken to sample one row more than its decodes.
    """
    counts = _Counts(forward)
    busy = 0.0
    for first in range(0, len(steps["steps"]), _ROWS):
        rows = slice(first, first + _ROWS)
        counts.add(*(steps[name][rows].astype(np.int64) for name in _FIELDS))
        busy += busy_time(steps, rows)
    groups = {group: to_seconds(each) for group, each in counts.ticks(policy).items()}
    gpu_time = float(steps["gpu_time"].sum())
    if forward.uneven is not None:
        groups["attention_decode"] += _lost_to_the_longest(forward, policy, steps)
    groups["attention_prefill"] = max(0.0, gpu_time - sum(groups.values())) if counts.mixed.any() else 0.0
    groups["host"] = max(0.0, busy - gpu_time)
    return groups


def _lost_to_the_longest(forward: Forward, policy: GraphPolicy, steps: Mapping[str, NDArray[Any]]) -> float:
    """Seconds that decodes of unequal context took in steps of their own beyond equal ones: what is left of these."""
    alone = _Counts(forward)
    rows = steps["prefill_tokens"] == 0
    alone.add(*(steps[name][rows].astype(np.int64) for name in _FIELDS))
    ticks = sum(alone.ticks(policy).values())
    return max(0.0, float(steps["gpu_time"][rows].sum()) - to_seconds(ticks))


def busy_time(steps: Mapping[str, NDArray[Any]], rows: slice) -> float:
    """Seconds in which replicas had a step under way, on the GPU or on the CPU. Asynchronous steps overlap: one begins
    where its predecessor on the same replica has ended, if it was decided before.
    """
    start, end, cpu = (steps[name][rows] for name in ("start", "end", "cpu_time"))
    begin = start.copy()
    before = slice(max(0, rows.start - 1), rows.start + len(start) - 1)
    later = begin[1:] if rows.start == 0 else begin
    follows = steps["replica"][before] == steps["replica"][rows][-len(later) :] if len(later) else np.zeros(0, bool)
    np.maximum(later, steps["end"][before], out=later, where=follows)
    return float((np.maximum(end, start + cpu) - begin).sum())


class _Counts:
    """Steps of a log by the row counts that their operators see; ticks of their decode attention."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self.mixed = self._decoding = self._sampled = np.zeros(0, dtype=np.int64)
        self._attention = 0

    def add(self, prefill: IntArray, decodes: IntArray, context: IntArray, repeat: IntArray) -> None:
        """Counts rows of the log."""
        has_prefill = prefill > 0
        tokens = prefill + decodes
        self.mixed = _added(self.mixed, tokens[has_prefill], repeat[has_prefill])
        self._decoding = _added(self._decoding, tokens[~has_prefill], repeat[~has_prefill])
        self._sampled = _added(self._sampled, decodes + has_prefill, repeat)
        for time, count in zip(self._forward.times, self._forward.layers, strict=True):
            self._attention += count * _sum_over_steps(time, decodes, context, repeat)

    def ticks(self, policy: GraphPolicy) -> dict[str, int]:
        """Ticks of each group of operators."""
        forward = self._forward
        ticks: defaultdict[str, int] = defaultdict(int)
        for times, decode_only in ((self.mixed, False), (self._decoding, True)):
            tokens = np.flatnonzero(times)
            rows = [policy.choose(each, decode_only=decode_only)[1] for each in tokens.tolist()]
            for operator, each in forward.body_ticks(np.array(rows, dtype=np.int64)).items():
                ticks[operator.group] += forward.operators[operator] * int(each @ times[tokens])
        sampled = np.flatnonzero(self._sampled)
        for operator, each in forward.head_ticks(sampled).items():
            ticks[operator.group] += int(each @ self._sampled[sampled])
        return {**ticks, "attention_decode": self._attention}


def _added(times: IntArray, rows: IntArray, repeat: IntArray) -> IntArray:
    """How many steps have each row count, with some more."""
    more = np.bincount(rows, weights=repeat, minlength=len(times)).astype(np.int64)
    more[: len(times)] += times
    return more


def _sum_over_steps(time: LayerTime, decodes: IntArray, context: IntArray, repeat: IntArray) -> int:
    """Ticks of one layer's decode attention over all rows: step i of a row reads context + i * decodes tokens."""
    keep = decodes > 0
    decodes, context, repeat = decodes[keep], context[keep], repeat[keep]
    distinct, which = np.unique(decodes, return_inverse=True)
    pieces = [time.decodes.pieces(count) for count in distinct.tolist()]
    longest = max(map(len, pieces), default=0)
    total = 0
    before = np.zeros_like(repeat)
    for piece in range(longest):
        until, base, slope = np.array([each[min(piece, len(each) - 1)] for each in pieces]).T
        upto = np.clip((until[which] - context) // decodes + 1, before, repeat)
        steps = upto - before
        read = steps * context + decodes * ((upto * (upto - 1) - before * (before - 1)) // 2)
        total += int((base[which] * steps + slope[which] * read).sum())
        before = upto
    return total
