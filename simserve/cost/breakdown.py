"""Where the GPU's time of a run went, by group of operators, from the step log alone.

Vectorised over the rows of the log after the run, so that the run itself pays nothing for it.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.cost.attention import AttentionTime
from simserve.cost.curve import IntArray
from simserve.cost.forward import Forward
from simserve.cost.launch import GraphPolicy
from simserve.spec.ticks import to_seconds


def step_time_breakdown(forward: Forward, policy: GraphPolicy, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Seconds of each group of operators, and of the `host` where the GPU waited for it, summed over a step log.

    `steps` has columns replica, prefill_tokens, decodes, context_tokens (of the first step of a row), steps, start, end
    and gpu_time. All groups but `host` add up to the GPU's time. Chunks are not in the log, so `attention_prefill` is
    what the other groups leave of the GPU's time, what decodes lose beside chunks included, and a prompt step is taken
    to sample one row more than its decodes.
    """
    prefill, decodes, repeat = (steps[name].astype(np.int64) for name in ("prefill_tokens", "decodes", "steps"))
    has_prefill = prefill > 0
    gpu_time = float(steps["gpu_time"].sum())
    ticks: defaultdict[str, int] = defaultdict(int)
    for decode_only in (False, True):
        kept = has_prefill != decode_only
        tokens, times = _counted((prefill + decodes)[kept], repeat[kept])
        rows = [policy.choose(each, decode_only=decode_only)[1] for each in tokens.tolist()]
        for operator, each in forward.body_ticks(np.array(rows, dtype=np.int64)).items():
            ticks[operator.group] += forward.operators[operator] * int(each @ times)
    sampled, times = _counted(decodes + has_prefill, repeat)
    for operator, each in forward.head_ticks(sampled).items():
        ticks[operator.group] += int(each @ times)
    ticks["attention_decode"] = _decode_attention(forward, decodes, steps["context_tokens"].astype(np.int64), repeat)
    groups = {group: to_seconds(each) for group, each in ticks.items()}
    groups["attention_prefill"] = max(0.0, gpu_time - sum(groups.values())) if has_prefill.any() else 0.0
    groups["host"] = max(0.0, _busy_time(steps) - gpu_time)
    return groups


def _busy_time(steps: Mapping[str, NDArray[Any]]) -> float:
    """Seconds in which replicas had a step under way. Asynchronous steps overlap: one begins where its predecessor on
    the same replica has ended, if it was decided before.
    """
    order = np.lexsort((steps["end"], steps["replica"]))
    replica, start, end = (steps[name][order] for name in ("replica", "start", "end"))
    begin = start.copy()
    follows = replica[1:] == replica[:-1]
    begin[1:] = np.where(follows, np.maximum(start[1:], end[:-1]), start[1:])
    return float((end - begin).sum())


def _counted(rows: IntArray, repeat: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct row counts, and how many steps have each."""
    times = np.bincount(rows, weights=repeat).astype(np.int64)
    distinct = np.flatnonzero(times)
    return distinct, times[distinct]


def _decode_attention(forward: Forward, decodes: IntArray, context: IntArray, repeat: IntArray) -> int:
    layers = list(forward.shape.each_layer())
    num_window = sum(layer.attention.window is not None for layer in layers)
    total = 0
    for time, count in ((forward.full, len(layers) - num_window), (forward.window, num_window)):
        if time is not None:
            total += count * _sum_over_steps(time, decodes, context, repeat)
    return total


def _sum_over_steps(time: AttentionTime, decodes: IntArray, context: IntArray, repeat: IntArray) -> int:
    """Ticks of one layer's decode attention over all rows: step i of a row reads context + i * decodes tokens."""
    total = 0
    for count in np.unique(decodes[decodes > 0]).tolist():
        rows = decodes == count
        first, steps = context[rows], repeat[rows]
        before = np.zeros_like(steps)
        for until, base, slope in time.decodes.pieces(count):
            upto = np.clip((until - first) // count + 1, before, steps)
            read = (upto - before) * first + count * ((upto * (upto - 1) - before * (before - 1)) // 2)
            total += base * int((upto - before).sum()) + slope * int(read.sum())
            before = upto
    return total
