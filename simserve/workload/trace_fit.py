"""A synthetic workload with the statistics of a trace, and how near it comes.

Gaps become constant, Poisson or gamma arrivals with the mean and the spread of the trace's; lengths become lists of
values, the means of equal parts of the sorted lengths, which keep the mean; chats become sessions; shared beginnings a
class of requests with a shared prefix. What these cannot hold is said: how rate and lengths change over time, how long
ago a shared text was used, and which prompt has which answer.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.workload.suspicions import grid_of
from simserve.workload.trace_checks import parents_of
from simserve.workload.trace_facts import arrival_times_of, hit_rate, rate_facts, rate_over_time, shared_tokens
from simserve.workload.traces import Trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Section = dict[str, Any]

_VALUES: Final = 200
"""Most values of a list of lengths."""
_MOST_REQUESTS: Final = 1_000_000
_MOST_CV: Final = 5.0
"""Spread of gaps beyond which it is silences that are seen, not bursts."""
_TIERS: Final = 8
"""Classes by length of prompt, where prompts share text."""


class Fit(NamedTuple):
    """The workload section of a scenario, and sentences on what it leaves out."""

    workload: Section
    notes: list[str]


class Nearness(NamedTuple):
    """One statistic in the trace and in what was drawn from the fit; `distance` is relative, or that of `measure`."""

    statistic: str
    trace: float | None
    fitted: float | None
    distance: float
    measure: str


def fit_trace(trace: Trace) -> Fit:
    """The workload that has a trace's statistics, as plain data.

    Raises:
        ScenarioError: the trace is too short to have any.
    """
    if len(trace) < 2:
        raise ScenarioError("a trace of one request has no statistics to fit")
    section, notes = _arrivals(trace)
    if np.any(parents_of(trace.session) >= 0) and (trace.prefix is None or not trace.prefix.known.all()):
        section |= _chats(trace, notes)
    elif trace.prefix is not None and shared_tokens(trace).any():
        section |= _sharers(trace, notes)
    else:
        section["input"] = _values(trace.input_len)
    section["output"] = _values(trace.output_len)
    if np.any(trace.max_tokens != trace.output_len):
        notes.append("max_tokens is left out: it is that of the drawn answer.")
    if len({*trace.class_name.tolist()}) > 1:
        notes.append("Classes are left out: lengths are those of all requests together.")
    notes.append("Prompts and answers are drawn independently, and alike over the whole run.")
    return Fit(section, notes)


def _arrivals(trace: Trace) -> tuple[Section, list[str]]:
    """Arrivals with their number or their duration."""
    times = arrival_times_of(trace)
    parents = parents_of(trace.session)
    if trace.prefix is None and np.any(parents >= 0):
        times = np.sort(trace.arrival[(parents < 0) & np.isfinite(trace.arrival)])
    count: Section = {"num_requests": min(len(trace), _MOST_REQUESTS)}
    facts = rate_facts(times)
    rate, cv = facts["mean_rate"], facts["gap_cv"]
    if rate is None or cv is None:
        notes = (
            [] if len(times) > 1 else ["The trace has no times: all requests come at once until you state arrivals."]
        )
        return {"arrivals": {"process": "all_at_once"}, **count}, notes
    if cv > _MOST_CV and len(times) == len(trace):
        return _stages(times)
    notes = []
    if step := grid_of(times):
        cv = max(_dispersion(times) or 1.0, 1e-4) ** 0.5
        notes.append(
            f"Times stand on a grid of {step:g} s: the cv of gaps is that of the counts in windows of 10 s, {cv:.3g}."
        )
    rate = float(f"{rate:.6g}")
    if cv < 0.01:
        return {"arrivals": {"process": "constant", "rate": rate}, **count}, notes
    if abs(cv - 1) < 0.03:
        return {"arrivals": {"process": "poisson", "rate": rate}, **count}, notes
    return {"arrivals": {"process": "gamma", "rate": rate, "cv": float(f"{cv:.6g}")}, **count}, notes


def _stages(times: FloatArray) -> tuple[Section, list[str]]:
    """Poisson arrivals in stages, for traffic with silences that no spread of gaps describes."""
    edges, rates = rate_over_time(times)
    stages = [
        {"rate": float(f"{max(rate, 1e-9):.6g}"), "duration": float(f"{length:.6g}")}
        for rate, length in zip(rates.tolist(), np.diff(edges).tolist(), strict=True)
    ]
    section = {"arrivals": {"process": "piecewise", "stages": stages}, "duration": float(f"{edges[-1] - edges[0]:.6g}")}
    return section, [f"The rate changes too much for one process: {len(stages)} stages of Poisson arrivals."]


def _values(lengths: IntArray) -> Any:
    """A list of lengths, or one number where all are alike: means of equal parts of the sorted lengths."""
    if len(np.unique(lengths)) == 1:
        return int(lengths[0])
    parts = np.array_split(np.sort(lengths), min(_VALUES, len(lengths)))
    return {"distribution": "empirical", "values": [max(1, round(float(part.mean()))) for part in parts]}


def _chats(trace: Trace, notes: list[str]) -> Section:
    """Sessions: turns, new tokens of a turn, and the pause before it."""
    parents = parents_of(trace.session)
    later = parents >= 0
    _, turns = np.unique(trace.session[trace.session != ""], return_counts=True)
    turns = np.concatenate((turns, np.ones(np.count_nonzero(trace.session == ""), dtype=np.int64)))
    new = trace.input_len - np.where(later, trace.input_len[parents] + trace.output_len[parents], 0)
    pauses = trace.think[later & np.isfinite(trace.think)]
    if not len(pauses):
        between = (trace.arrival - trace.arrival[parents])[later]
        pauses = between[np.isfinite(between)]
        notes.append("The pause between turns is the mean time between their arrivals, the answer's own time inside.")
    elif pauses.std() > 0.1 * max(float(pauses.mean()), 1e-9):
        notes.append(
            f"Pauses between turns vary (cv {pauses.std() / pauses.mean():.2f}); the fit has their mean alone."
        )
    pause = float(f"{float(pauses.mean()) if len(pauses) else 0.0:.6g}")
    return {
        "sessions": {"turns": _values(turns), "think_time": pause, "first_input": _values(new[~later])},
        "input": _values(np.maximum(new[later], 1)),
    }


def _sharers(trace: Trace, notes: list[str]) -> Section:
    """Classes of requests by the length of their prompts, each with prefixes that give its hits."""
    hits = shared_tokens(trace)
    order = np.argsort(trace.input_len, kind="stable")
    tiers = [rows for rows in np.array_split(order, _TIERS) if len(rows)]
    shares = [round(len(rows) / len(trace), 6) for rows in tiers]
    shares[-1] = round(1 - sum(shares[:-1]), 6)
    classes = []
    for number, (rows, share) in enumerate(zip(tiers, shares, strict=True)):
        tier = {"name": f"inputs_{number + 1}_of_{len(tiers)}", "share": share, "input": _values(trace.input_len[rows])}
        if prefix := _prefix(trace.input_len[rows], hits[rows]):
            tier["shared_prefix"] = prefix
        classes.append(tier)
    notes.append(
        f"Shared beginnings became {len(tiers)} classes by length of prompt, each with prefixes of its own and of one"
        " length: the hits of a cache without end are kept as far as that goes; how long ago a text was used, and what"
        " short and long prompts share, is not."
    )
    return {"classes": classes}


def _prefix(input_len: IntArray, hits: IntArray) -> Section | None:
    """Prefixes inside all prompts whose hits, all but the first of each group, add up to those of the trace."""
    total, count = int(hits.sum()), len(hits)
    shortest = int(input_len.min())
    if not total or count < 2:
        return None
    length = int(np.clip(round(float(hits[hits > 0].mean())), 1, shortest))
    if (count - 1) * length < total:
        length = int(np.clip(-(-total // (count - 1)), 1, shortest))
    return {"groups": _groups_that_miss(count - total / length, count), "length": length}


def _groups_that_miss(misses: float, count: int) -> int:
    """Groups of which `count` draws meet so many at least once, on the mean: groups (1 - (1 - 1 / groups)^count)."""
    few, many = 1, 100 * count
    while few < many:
        groups = (few + many) // 2
        if groups * -np.expm1(count * np.log1p(-1 / max(groups, 1.5))) < misses:
            few = groups + 1
        else:
            many = groups
    return few


def nearness(trace: Trace, drawn: Trace) -> list[Nearness]:
    """How near requests that were drawn from a fit are to the trace."""
    rates = [rate_facts(arrival_times_of(one)) for one in (trace, drawn)]
    gaps = [np.diff(arrival_times_of(one)) for one in (trace, drawn)]
    found = [_relative("arrival rate (1/s)", *(facts["mean_rate"] for facts in rates))]
    found.append(_relative("cv of gaps", *(facts["gap_cv"] for facts in rates)))
    if all(len(one) for one in gaps):
        found.append(Nearness("gaps (s)", *_means(gaps), ks_distance(*gaps), "KS"))
    for name, lengths in (
        ("input tokens", (trace.input_len, drawn.input_len)),
        ("output tokens", (trace.output_len, drawn.output_len)),
    ):
        found.append(Nearness(name, *_means(lengths), ks_distance(*lengths), "KS"))
        found.append(_relative(f"p99 {name}", *(float(np.percentile(one, 99)) for one in lengths)))
    found.append(_relative("ideal hit rate", hit_rate(trace), hit_rate(drawn)))
    counts = [_dispersion(arrival_times_of(one)) for one in (trace, drawn)]
    found.append(_relative("variance / mean of counts per 10 s", *counts))
    return [one for one in found if one.trace is not None or one.fitted is not None]


def _means(values: Sequence[NDArray[Any]]) -> tuple[float, float]:
    return float(values[0].mean()), float(values[1].mean())


def _relative(name: str, before: float | None, after: float | None) -> Nearness:
    if before is None or after is None:
        return Nearness(name, before, after, float("nan"), "relative")
    return Nearness(name, before, after, after / before - 1 if before else float(after != before), "relative")


def ks_distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Largest distance between two empirical distributions (Kolmogorov-Smirnov), 0 to 1."""
    points = np.unique(np.concatenate((one, other)))
    shares = [np.searchsorted(np.sort(values), points, side="right") / len(values) for values in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def _dispersion(times: FloatArray) -> float | None:
    """Index of dispersion of counts in windows of 10 s: 1 for Poisson arrivals; None for less than ten windows."""
    if len(times) < 2 or times[-1] - times[0] < 100:
        return None
    counts, _ = np.histogram(times, np.arange(times[0], times[-1], 10.0))
    return float(counts.var() / counts.mean()) if counts.mean() else None
