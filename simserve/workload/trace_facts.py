"""What a trace is like, in numbers: rate, burstiness, lengths, sharing, sessions."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simserve.workload.prefix_ids import ideal_hits
from simserve.workload.trace_checks import parents_of
from simserve.workload.traces import Trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_WINDOWS: Final = 100
"""Parts of the span whose rates are looked at."""


def trace_facts(trace: Trace) -> dict[str, Any]:
    """Numbers of a trace as plain data: tokens are sums, lengths statistics, times in s, None where there is none.

    `gap_cv` is the coefficient of variation of the gaps between arrivals, `burstiness` 1 / cv^2 as `vllm bench serve`
    has it. `ideal_hit_rate` is the share of prompt tokens that earlier prompts began with, too: what a prefix cache
    without end could hit at most, as far as the trace says what is shared.
    """
    times = arrival_times_of(trace)
    sessions, turns = np.unique(trace.session[trace.session != ""], return_counts=True)
    account = {} if trace.report is None else trace.report.as_dict()
    return {
        **account,
        "input_tokens": int(trace.input_len.sum()),
        "output_tokens": int(trace.output_len.sum()),
        "input_tokens_counted_by": trace.input_counted_by,
        "span_s": float(times[-1] - times[0]) if len(times) else None,
        **rate_facts(times),
        "input_lengths": length_facts(trace.input_len),
        "output_lengths": length_facts(trace.output_len),
        "length_correlation": _correlation(trace.input_len, trace.output_len),
        "sessions": len(sessions),
        "turns_per_session": float(turns.mean()) if len(sessions) else None,
        "classes": sorted({str(name) for name in trace.class_name.tolist()} - {""}),
        "ideal_hit_rate": hit_rate(trace),
    }


def arrival_times_of(trace: Trace) -> FloatArray:
    """Times that the trace states, in order."""
    return np.sort(trace.arrival[np.isfinite(trace.arrival)])


def rate_facts(times: FloatArray) -> dict[str, float | None]:
    """Mean and peak rate, and how bursty the gaps are."""
    gaps = np.diff(times)
    if not len(gaps) or gaps.sum() <= 0:
        return dict.fromkeys(("mean_rate", "peak_rate", "gap_cv", "burstiness"))
    cv = float(gaps.std() / gaps.mean())
    _, rates = rate_over_time(times)
    return {
        "mean_rate": float(1 / gaps.mean()),
        "peak_rate": float(rates.max()),
        "gap_cv": cv,
        "burstiness": 1 / cv**2 if cv > 1e-9 else None,
    }


def rate_over_time(times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Edges of equal windows of time, and the rate in each; windows hold ten requests or more on the mean."""
    count = int(np.clip(len(times) // 10, 1, _WINDOWS))
    edges = np.linspace(times[0], max(times[-1], times[0] + 1e-9), count + 1)
    counts, _ = np.histogram(times, edges)
    return edges, counts / np.diff(edges)


def length_facts(lengths: IntArray) -> dict[str, float]:
    """Statistics of lengths in tokens."""
    found = {"mean": float(lengths.mean()), "std": float(lengths.std()), "min": float(lengths.min())}
    for percent in (50, 90, 99):
        found[f"p{percent}"] = float(np.percentile(lengths, percent))
    return found | {"max": float(lengths.max())}


def shared_tokens(trace: Trace) -> IntArray:
    """Tokens at the beginning of each prompt that were said before: by ids, or in the turns before of a chat."""
    parents = parents_of(trace.session)
    known = np.zeros(len(trace), dtype=np.bool_) if trace.prefix is None else trace.prefix.known
    follows = (parents >= 0) & ~known
    spoken = np.where(follows, trace.input_len[parents] + trace.output_len[parents], 0)
    if trace.prefix is not None:
        spoken = np.where(known, ideal_hits(trace.prefix), spoken)
    return np.minimum(spoken, trace.input_len)


def hit_rate(trace: Trace) -> float | None:
    """Share of the prompt tokens that were said before; None where the trace says nothing of that."""
    if trace.prefix is None and not np.any(trace.session != ""):
        return None
    return float(shared_tokens(trace).sum() / trace.input_len.sum())


def _correlation(inputs: IntArray, outputs: IntArray) -> float | None:
    """Spearman's rank correlation of prompts and answers; None where one of them does not vary."""
    if len(inputs) < 3 or len(np.unique(inputs)) == 1 or len(np.unique(outputs)) == 1:
        return None
    return float(np.corrcoef(_ranks(inputs), _ranks(outputs))[0, 1])


def _ranks(values: IntArray) -> FloatArray:
    """Ranks, equal values sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: FloatArray = ((2 * ends - counts - 1) / 2)[inverse]
    return shared
