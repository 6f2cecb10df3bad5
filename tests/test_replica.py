"""One replica in time: when steps are decided, when they end, who is in them, and when their tokens are known."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from random_scenarios import scenarios
from served import ASYNC, SYNC, constant, milliseconds, serve
from single_steps import ticks

from simserve.cost import build_step_cost
from simserve.engine.census import Census
from simserve.engine.clock import Clock
from simserve.engine.pace.steps import Steps
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.replica import Replica
from simserve.engine.request import Request
from simserve.simulation import scheduler_config, simulate
from simserve.spec.result import UNFINISHED, Result
from simserve.spec.scenario import Scenario

MILLISECOND = 10**10
"""In ticks."""

# The recurrences


@given(scenarios(run={"resolution": "steps"}, engine={"async_scheduling": False}))
@settings(max_examples=40)
def test_a_synchronous_step_follows_the_one_before(question: Scenario) -> None:
    """A_k = E_{k-1}, or when someone comes after that; E_k is no earlier than the kernels' time after A_k."""
    result = simulate(question)
    for start, end, gpu, _, came in logs(result):
        assert np.all((start[1:] == end[:-1]) | ((start[1:] > end[:-1]) & np.isin(start[1:], came)))
        assert np.all(end - start >= gpu)


@given(scenarios(run={"resolution": "steps"}, engine={"async_scheduling": True}))
@settings(max_examples=40)
def test_an_asynchronous_step_is_decided_while_the_one_before_runs(question: Scenario) -> None:
    """A_{k+1} = max(A_k + cpu_k, E_{k-1} + update), or later where nothing was left to decide: when the tokens of step
    k came back, or someone came. The GPU takes steps in order: E_k >= max(E_{k-1}, A_k) + gpu_k."""
    result = simulate(question)
    update = 0 if question.cost.constant_step else int(ticks(np.array(question.cost.host.update)))
    for start, end, gpu, cpu, came in logs(result):
        before = np.concatenate(([0], end[:-1]))
        assert np.all(end >= np.maximum(before, start) + gpu)
        decided = np.maximum(start + cpu, before + update)[:-1]
        came_back = (end + update)[:-1]
        later = start[1:] > decided
        assert np.all(start[1:] >= decided)
        assert np.all(~later | (start[1:] == came_back) | np.isin(start[1:], came))


def logs(result: Result) -> Any:
    """Of each replica: start, end, GPU and CPU time of each step, and when requests reached it; in ticks."""
    for index in range(result.scenario.cluster.replicas):
        rows = result.steps["replica"] == index
        columns = [ticks(result.steps[name][rows]) for name in ("start", "end", "gpu_time", "cpu_time")]
        yield *columns, ticks(result.requests["engine_arrival"][result.requests["replica"] == index])


# Who is in a step


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.parametrize("resolution", ["runs", "steps"])
def test_who_comes_at_the_tick_of_a_decision_is_in_it(mode: str, resolution: str) -> None:
    """And who comes a nanosecond later has to wait for the next."""
    rows = [(0, 10, 9), (20, 10, 1), (20.000001, 10, 1)]
    result = serve(rows, mode, f"run.resolution={resolution}")
    assert milliseconds(result, "scheduled") == [0, 20, 30]


def test_a_step_takes_all_who_are_there() -> None:
    """Three prompts within the budget begin in one step, and decode together until each has its own end."""
    result = serve([(0, 10, 1), (0, 20, 3), (0, 30, 2)], SYNC, "run.resolution=steps")
    assert milliseconds(result, "finish") == [10, 30, 20]
    assert result.steps["prefill_tokens"].tolist() == [60, 0, 0]
    assert result.steps["decodes"].tolist() == [0, 2, 1]
    assert result.steps["context_tokens"].tolist() == [0, 21 + 31, 22]
    assert result.steps["running"].tolist() == [3, 2, 1]


def test_a_long_prompt_goes_in_chunks_beside_decodes() -> None:
    """Budget 64: the prompt of 150 tokens gets what the decode leaves, 63 a step; nobody stands still for it."""
    rows = [(0, 10, 6), (5, 150, 2)]
    result = serve(rows, SYNC, "engine.max_num_batched_tokens=64", "engine.max_num_seqs=8")
    assert result.steps["prefill_tokens"].tolist() == [10, 63, 63, 24, 0, 0]
    assert result.steps["decodes"].tolist() == [0, 1, 1, 1, 2, 1]
    assert milliseconds(result, "first_token") == [10, 40]
    assert milliseconds(result, "finish") == [60, 50]


@pytest.mark.parametrize(("mode", "third"), [(SYNC, 20), (ASYNC, 30)])
def test_a_seat_comes_free_a_step_later_where_steps_are_decided_ahead(mode: str, third: int) -> None:
    """Two seats: the first answer ends with the step of 10 to 20 ms. The asynchronous engine has decided the next step
    by then (vLLM's rule 33), and lets the third request in with the one after."""
    result = serve([(0, 10, 2), (0, 10, 9), (0, 10, 1)], mode, "engine.max_num_seqs=2")
    assert milliseconds(result, "finish")[0] == 20
    assert [row.item() for row in result.requests["first_step"]] == [0, 0, third // 10]
    assert milliseconds(result, "first_token")[2] == third + 10


@pytest.mark.parametrize("resolution", ["runs", "steps"])
@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_an_end_in_time_takes_the_steps_decided_before_it(resolution: str, mode: str) -> None:
    """At 35 ms the synchronous engine has decided four steps; the asynchronous one has five, 10 ms ahead of the GPU."""
    result = serve([(0, 10, 100), (60, 10, 1)], mode, "run.max_time=35 ms", f"run.resolution={resolution}")
    requests = result.requests
    assert requests["status"].tolist() == [UNFINISHED, UNFINISHED]
    assert requests["output_len"].tolist() == [4 if mode == SYNC else 5, 0]
    assert milliseconds(result, "first_token")[0] == 10
    assert np.isnan(requests["finish"]).all()
    assert np.isnan(requests["arrival"][1])


# What a router may ask


def test_a_request_is_outstanding_until_after_the_tick_of_its_last_token() -> None:
    question = constant(SYNC)
    clock = Clock()
    scheduler = VllmV1(scheduler_config(question, 1000))
    replica = Replica(clock, scheduler, Steps(build_step_cost(question)))
    census = Census()
    replica.be_counted(census, census.join())
    clock.run(until=5 * MILLISECOND)
    for row, output_len in enumerate((1, 3)):
        replica.receive(Request(row, int(clock.now), 10, output_len, output_len))
    counts = []
    for at in (14, 15, 16, 34, 35, 36):
        clock.run(until=at * MILLISECOND)
        counts.append(replica.num_outstanding(int(clock.now)))
    assert counts == [2, 2, 1, 1, 1, 0]


def test_an_idle_replica_waits_without_events() -> None:
    """Nothing is on the heap while nobody is there."""
    question = constant(SYNC)
    clock = Clock()
    Replica(clock, VllmV1(scheduler_config(question, 1000)), Steps(build_step_cost(question)))
    clock.run()
    assert clock.peek() == float("inf")
    assert clock.now == 0
