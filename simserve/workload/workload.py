"""From a scenario to its traffic. Vectorised, every source of randomness on a stream of its own."""

import numpy as np

from simserve.spec.scenario import Scenario
from simserve.spec.workload import ClosedLoop, SessionsSpec, WorkloadSpec
from simserve.workload.arrivals import arrival_times
from simserve.workload.classes import class_names, class_priorities, draw_by_class, draw_classes
from simserve.workload.columns import IntArray, Workload, clock_ticks
from simserve.workload.prompts import check_prefixes, draw_prefixes
from simserve.workload.recorded import replay_trace
from simserve.workload.sessions import draw_chats, draw_turns
from simserve.workload.streams import random_stream

__all__ = ["Workload", "build_workload"]


def build_workload(scenario: Scenario) -> Workload:
    """Requests of a scenario, the same ones in every process.

    Raises:
        ScenarioError: a trace or a file of lengths that cannot be used, or arrivals that do not add up.
    """
    spec = scenario.workload
    if spec.trace is not None:
        return replay_trace(spec, spec.trace, scenario.seed)
    if spec.sessions is not None:
        return _build_sessions(scenario, spec.sessions)
    return _build_requests(scenario)


def _build_requests(scenario: Scenario) -> Workload:
    spec, seed = scenario.workload, scenario.seed
    assert spec.arrivals is not None
    arrival = clock_ticks(
        arrival_times(spec.arrivals, spec.num_requests, spec.duration, random_stream(seed, "arrivals"))
    )
    class_index = draw_classes(spec, len(arrival), seed)
    input_len = draw_by_class(spec, "input", class_index, seed)
    output_len = draw_by_class(spec, "output", class_index, seed)
    max_tokens = draw_by_class(spec, "max_tokens", class_index, seed, otherwise=output_len)
    prefixes = draw_prefixes(spec, class_index, seed)
    input_len = input_len + prefixes.added
    check_prefixes(prefixes.length, input_len)
    users, think = 0, 0.0
    if isinstance(spec.arrivals, ClosedLoop):
        users, think = spec.arrivals.users, spec.arrivals.think_time
    nothing = np.full(len(arrival), -1, dtype=np.int64)
    return Workload(
        arrival=arrival,
        input_len=input_len,
        output_len=np.minimum(output_len, max_tokens),
        max_tokens=max_tokens,
        priority=class_priorities(spec)[class_index],
        class_index=class_index,
        class_names=class_names(spec),
        prefix_group=prefixes.group,
        prefix_len=prefixes.length,
        session=nothing,
        turn=np.zeros_like(nothing),
        parent=nothing,
        think=_ticks(think) + _jitter(spec, len(arrival), seed),
        users=users,
    )


def _build_sessions(scenario: Scenario, sessions: SessionsSpec) -> Workload:
    spec, seed, max_model_len = scenario.workload, scenario.seed, scenario.engine.max_model_len
    assert spec.arrivals is not None
    rng = random_stream(seed, "arrivals")
    if spec.num_requests is not None:
        drawn = draw_turns(spec, sessions, spec.num_requests, max_model_len, seed)
        starts = clock_ticks(arrival_times(spec.arrivals, int(drawn.session[-1]) + 1, None, rng))
    else:
        starts = clock_ticks(arrival_times(spec.arrivals, None, spec.duration, rng))
        drawn = draw_chats(spec, sessions, len(starts), max_model_len, seed)
    chats = drawn.only(drawn.fits)
    first = chats.turn == 0
    rows = np.arange(len(first))
    check_prefixes(chats.prefix_len[first], chats.input_len[first])
    return Workload(
        arrival=np.where(first, starts[chats.session], -1),
        input_len=chats.input_len,
        output_len=chats.output_len,
        max_tokens=chats.max_tokens,
        priority=class_priorities(spec)[chats.class_index],
        class_index=chats.class_index,
        class_names=class_names(spec),
        prefix_group=np.where(first, chats.prefix_group, -1),
        prefix_len=np.where(first, chats.prefix_len, 0),
        session=chats.session,
        turn=chats.turn,
        parent=np.where(first, -1, rows - 1),
        think=np.where(first, 0, _ticks(sessions.think_time) + _jitter(spec, len(first), seed)),
        shortened_sessions=drawn.shortened,
    )


def _jitter(spec: WorkloadSpec, count: int, seed: int) -> IntArray:
    """Ticks that each client takes beside its think time, exponential."""
    if not spec.mean_jitter:
        return np.zeros(count, dtype=np.int64)
    return clock_ticks(random_stream(seed, "jitter").exponential(spec.mean_jitter, count))


def _ticks(seconds: float) -> int:
    return int(clock_ticks(np.array([seconds]))[0])
