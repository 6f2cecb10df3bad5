"""Recorded traffic: a trace as the workload of a run, at its own times or re-timed, and a workload as a trace."""

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.ticks import to_seconds
from simserve.spec.workload import ClosedLoop, TraceSpec, WorkloadSpec
from simserve.workload.arrivals import arrival_times
from simserve.workload.classes import DEFAULT_CLASS, class_names, class_priorities, draw_classes
from simserve.workload.columns import LAST_SECOND, FloatArray, IntArray, Workload, clock_ticks
from simserve.workload.formats.table import Options
from simserve.workload.prefix_ids import PrefixIds, shared_text
from simserve.workload.streams import random_stream
from simserve.workload.trace_checks import parents_of
from simserve.workload.traces import Trace, read_trace


def replay_trace(workload: WorkloadSpec, spec: TraceSpec, seed: int) -> Workload:
    """Requests of a trace, in its order; `arrivals` beside it re-times them.

    Classes are those of the trace's own column; where it has none, the scenario's are drawn by their shares.

    Raises:
        ScenarioError: the trace cannot be read, has a class that the scenario does not know, or is re-timed twice.
    """
    if workload.arrivals is not None and (spec.speedup != 1 or spec.rate is not None):
        key = "speedup" if spec.rate is None else "rate"
        raise ScenarioError(f"workload.trace.{key}: arrivals beside the trace re-time it; take one of them out")
    trace = read_trace(
        spec.path,
        spec.format,
        limit=spec.limit,
        offset=spec.offset,
        speedup=spec.speedup,
        rate=spec.rate,
        skip_bad_rows=spec.skip_bad_rows,
        needs_arrival=workload.arrivals is None,
        chat_template_tokens=spec.chat_template_tokens,
        options=read_options(spec, seed),
    )
    _refuse_beyond_the_clock(trace, spec)
    names, class_index = _classes(trace, workload, spec, seed)
    arrival = _arrivals(trace, workload, seed)
    parent = parents_of(trace.session)
    order = _order(parent, np.isfinite(trace.think))
    place = np.argsort(order)  # where each row of the trace went
    session = _numbered(trace.session)[order]
    loop = workload.arrivals if isinstance(workload.arrivals, ClosedLoop) else None
    think = np.nan_to_num(trace.think) if loop is None else np.full(len(trace), loop.think_time)
    priority = class_priorities(workload)[class_index] if trace.priority is None else trace.priority
    nothing = np.full(len(order), -1, dtype=np.int64)
    return Workload(
        arrival=clock_ticks(arrival[order]),
        input_len=trace.input_len[order],
        output_len=trace.output_len[order],
        max_tokens=trace.max_tokens[order],
        priority=priority[order],
        class_index=class_index[order],
        class_names=names,
        prefix_group=nothing,
        prefix_len=np.zeros_like(nothing),
        session=session,
        turn=_turns(session),
        parent=np.where(parent[order] >= 0, place[parent[order]], -1),
        think=clock_ticks(think[order]),
        users=loop.users if loop else 0,
        skipped_rows=trace.skipped_rows,
        client_input_len=None if trace.client_input_len is None else trace.client_input_len[order],
        input_counted_by=trace.input_counted_by,
        shared_text=None if trace.prefix is None else shared_text(trace.prefix).take(order),
        trace_report=trace.report,
    )


def _refuse_beyond_the_clock(trace: Trace, spec: TraceSpec) -> None:
    late = np.flatnonzero((trace.arrival > LAST_SECOND) | (trace.think > LAST_SECOND))
    if len(late):
        time = np.nanmax([trace.arrival[late[0]], trace.think[late[0]]])
        raise ScenarioError(
            f"{spec.path}, line {trace.number[late[0]]}: comes after {time:.6g} s, but the clock ends after"
            f" {LAST_SECOND:g} s (10 days); take a part with workload.trace.limit and offset, or raise speedup"
        )


def read_options(spec: TraceSpec, seed: int) -> Options:
    """What the scenario says of the file."""
    return Options(
        time_unit=spec.time_unit,
        block_size=spec.block_size,
        tokenizer=spec.tokenizer,
        characters_per_token=spec.characters_per_token,
        turns=spec.turns,
        result=spec.result,
        seed=seed,
    )


def trace_of(workload: Workload) -> Trace:
    """Workload as a trace, which written and replayed gives the very same requests.

    Raises:
        ScenarioError: a closed loop, whose times the simulation decides.
    """
    if workload.users:
        raise ScenarioError("a closed loop has no arrival times to save as a trace")
    waits = workload.arrival < 0
    return Trace(
        number=np.arange(len(workload)),
        arrival=np.where(waits, np.nan, to_seconds(workload.arrival)),
        input_len=workload.input_len,
        output_len=workload.output_len,
        max_tokens=workload.max_tokens,
        priority=workload.priority if np.any(workload.priority) else None,
        class_name=_words(workload.class_names, workload.class_index, len(workload.class_names) > 1),
        session=np.where(workload.session < 0, "", workload.session.astype(np.str_)),
        think=np.where(waits, to_seconds(workload.think), np.nan),
        skipped_rows=workload.skipped_rows,
        client_input_len=workload.client_input_len,
        input_counted_by=workload.input_counted_by or "server",
        prefix=_prefix_of(workload),
        report=workload.trace_report,
    )


def _prefix_of(workload: Workload) -> PrefixIds | None:
    """Shared text of a workload as ids: streams of a trace, or groups."""
    if workload.shared_text is not None:
        return PrefixIds(*workload.shared_text)
    grouped = workload.prefix_group >= 0
    if not grouped.any():
        return None
    start = np.concatenate(([0], np.cumsum(grouped)))
    return PrefixIds(start, workload.prefix_group[grouped], workload.prefix_len[grouped], grouped)


def _words(names: tuple[str, ...], index: IntArray, wanted: bool) -> NDArray[np.str_]:
    return np.array(names if wanted else [""] * len(names), dtype=np.str_)[index]


def _arrivals(trace: Trace, workload: WorkloadSpec, seed: int) -> FloatArray:
    """Time of each row in seconds, nan where the simulation decides it."""
    if workload.arrivals is None:
        return trace.arrival
    if isinstance(workload.arrivals, ClosedLoop) and np.any(trace.session != ""):
        raise ScenarioError("workload.arrivals: a trace with sessions has its own users: give it open arrivals")
    own = np.isnan(trace.think)
    arrival = np.full(len(trace), np.nan)
    arrival[own] = arrival_times(workload.arrivals, int(np.count_nonzero(own)), None, random_stream(seed, "arrivals"))
    return arrival


def _order(parent: IntArray, waits: NDArray[np.bool_]) -> IntArray:
    """Rows in order, but a turn that waits for its parent's answer right behind the parent."""
    anchor = np.where(waits, parent, np.arange(len(parent)))
    while np.any(waits[anchor]):
        anchor = anchor[anchor]
    return np.argsort(anchor, kind="stable")


def _classes(trace: Trace, workload: WorkloadSpec, spec: TraceSpec, seed: int) -> tuple[tuple[str, ...], IntArray]:
    names = class_names(workload)
    if not np.any(trace.class_name != ""):
        return names, draw_classes(workload, len(trace), seed)
    found = np.where(trace.class_name == "", DEFAULT_CLASS, trace.class_name)
    if not workload.classes:
        names = tuple(found[np.sort(np.unique(found, return_index=True)[1])].tolist())
    index = np.full(len(trace), -1, dtype=np.int64)
    for number, name in enumerate(names):
        index[found == name] = number
    if np.any(index < 0):
        row = int(np.argmax(index < 0))
        raise ScenarioError(
            f"{spec.path}, line {trace.number[row]}: class {str(found[row])!r} is not one of workload.classes "
            f"({', '.join(names)}); name it there, or leave workload.classes out"
        )
    return names, index


def _numbered(session: NDArray[np.str_]) -> IntArray:
    """Sessions numbered in order of appearance, -1 for rows without one."""
    words, first, index = np.unique(session, return_index=True, return_inverse=True)
    rank = np.empty(len(words), dtype=np.int64)
    named = np.argsort(np.where(words == "", len(session), first), kind="stable")
    rank[named] = np.arange(len(words))
    return np.where(session == "", -1, rank[index])


def _turns(session: IntArray) -> IntArray:
    """How many earlier rows are of the same session."""
    order = np.argsort(session, kind="stable")
    ordered = session[order]
    turns = np.empty(len(session), dtype=np.int64)
    turns[order] = np.arange(len(session)) - np.searchsorted(ordered, ordered)
    return np.where(session == -1, 0, turns)
