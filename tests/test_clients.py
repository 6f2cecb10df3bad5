"""Clients: who sends when, what the front end adds on the way in and out, and who waits for whose answer."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario
from single_steps import ticks

from simserve.simulation import simulate
from simserve.spec.result import COMPLETED, REJECTED
from simserve.spec.scenario import Scenario
from simserve.workload.workload import build_workload

DOOR = "{front_end_per_request: 3 ms, front_end_per_token: 20 us, delivery: 700 us}"
STEP = f"cost={{constant_step: 10 ms, host: {DOOR}}}"


def column(requests: Any, name: str) -> Any:
    return ticks(requests[name])


# Open loop


@given(scenarios())
@settings(max_examples=40)
def test_who_comes_by_the_clock_comes_when_the_workload_says(question: Scenario) -> None:
    """Arrivals do not depend on how the fleet does; what lies beyond the end of the run was never sent."""
    workload, requests = build_workload(question), simulate(question).requests
    end = question.run.max_time or np.inf
    known = (workload.arrival >= 0) & (workload.arrival < end * 1e13)
    np.testing.assert_array_equal(column(requests, "arrival")[known], workload.arrival[known])
    assert np.isnan(requests["arrival"][(workload.arrival >= 0) & ~known]).all()
    host = question.cost.host
    delay = ticks(np.array(host.front_end_per_request)) + ticks(np.array(host.front_end_per_token)) * workload.input_len
    read = ~np.isnan(requests["engine_arrival"])
    took = column(requests, "engine_arrival")[read] - column(requests, "arrival")[read]
    if host.front_end_busy:
        assert np.all(took >= delay[read] + ticks(np.array(host.front_end_busy)))
    else:
        np.testing.assert_array_equal(took, delay[read])
        np.testing.assert_array_equal(read, ~np.isnan(requests["arrival"]))


def test_a_short_prompt_may_overtake_a_long_one_at_the_door() -> None:
    """The long prompt is sent first and takes longer to be tokenised, so the engine sees it second (first come, first
    served holds at the engine)."""
    question = scenario(
        STEP, "engine.max_num_seqs=1", "workload.num_requests=20", "workload.arrivals={process: constant, rate: 1000}",
        "workload.input={distribution: empirical, values: [10, 2000]}", "workload.output=1",
    )  # fmt: skip
    requests = simulate(question).requests
    order = np.lexsort((requests["request_id"], requests["engine_arrival"]))
    assert np.all(np.diff(requests["scheduled"][order]) > 0)
    assert not np.all(np.diff(order) > 0)


def test_delivery_comes_after_the_engine_and_stretches_no_step() -> None:
    slow, fast = (simulate(scenario(f"cost.host.delivery={delay}")) for delay in ("50 ms", "0"))
    for name in ("first_token", "finish"):
        later = column(slow.requests, name) - column(fast.requests, name)
        np.testing.assert_array_equal(later, ticks(np.array(0.05)))
    np.testing.assert_array_equal(slow.steps["start"], fast.steps["start"])


# Closed loop


@given(st.integers(1, 12), st.sampled_from([0, 0.01, 0.2]), st.sampled_from(["runs", "steps"]), st.booleans())
@settings(max_examples=40)
def test_users_send_again_after_their_answers(
    users: int, think_time: float, resolution: str, asynchronous: bool
) -> None:
    """Never more than `users` under way; all of them begin at 0; each later arrival is `think_time` after an answer,
    one for one, as the client hears of it; rows are taken in order of time."""
    loop = f"workload.arrivals={{process: closed_loop, users: {users}, think_time: {think_time}}}"
    answers = "workload.output={distribution: uniform, min: 1, max: 30}"
    engine = ("engine.max_num_seqs=4", f"engine.async_scheduling={str(asynchronous).lower()}")
    question = scenario(STEP, loop, answers, *engine, "workload.num_requests=50", f"run.resolution={resolution}")
    requests = simulate(question).requests
    arrival, finish = column(requests, "arrival"), column(requests, "finish")
    assert np.all(arrival[:users] == 0)
    assert np.all(np.diff(arrival) >= 0)
    ready = np.sort(finish) + ticks(np.array(think_time))
    np.testing.assert_array_equal(arrival[users:], ready[: len(arrival) - users])
    for at in arrival.tolist():
        assert np.sum((arrival <= at) & (finish > at)) <= users


def test_a_user_whose_request_is_rejected_goes_on() -> None:
    """Prompts without room for a token are refused at the door, and nobody waits for them for ever."""
    question = scenario(
        "workload.arrivals={process: closed_loop, users: 2, think_time: 100 ms}", "workload.num_requests=30",
        "workload.input={distribution: empirical, values: [100, 5000]}", "engine.max_model_len=4096",
    )  # fmt: skip
    requests = simulate(question).requests
    too_long = requests["input_len"] == 5000
    assert 5 < too_long.sum() < 25
    np.testing.assert_array_equal(requests["status"], np.where(too_long, REJECTED, COMPLETED))
    assert np.isnan(requests["finish"][too_long]).all()
    assert (requests["replica"][too_long] == -1).all()


def test_ties_are_taken_in_the_order_of_users_and_rows() -> None:
    """Equal answers end at one tick and all users send at once: the engine gets them by row, run after run."""
    question = scenario(
        STEP, "workload.arrivals={process: closed_loop, users: 6}", "workload.num_requests=36", "workload.output=4",
        "engine.max_num_seqs=2", "cluster.replicas=2", "cluster.router=round_robin",
    )  # fmt: skip
    requests = simulate(question).requests
    assert np.all(np.diff(requests["arrival"]) >= 0)
    np.testing.assert_array_equal(requests["replica"], np.arange(36) % 2)


# Chats


@given(scenarios(workload={"sessions": {"turns": 3, "think_time": 0.01}, "shared_prefix": None, "input": 5, "output": 9,
                           "arrivals": {"process": "poisson", "rate": 50}}, run={"max_time": None}))  # fmt: skip
@settings(max_examples=40)
def test_a_turn_comes_after_the_answer_to_the_one_before(question: Scenario) -> None:
    """Think time after the client has read the whole answer, to the tick; the first turns come by the clock."""
    workload, requests = build_workload(question), simulate(question).requests
    arrival, finish = column(requests, "arrival"), column(requests, "finish")
    later = np.flatnonzero(workload.parent >= 0)
    assert len(later)
    np.testing.assert_array_equal(arrival[later], finish[workload.parent[later]] + workload.think[later])
    first = workload.parent < 0
    np.testing.assert_array_equal(arrival[first], workload.arrival[first])


# Progress


@pytest.mark.parametrize("load", ["workload.arrivals.rate=1000", "workload.arrivals={process: closed_loop, users: 90}"])
def test_progress_rises_from_nothing_to_all(load: str) -> None:
    told: list[float] = []
    simulate(scenario(load, "workload.num_requests=9000", "workload.output=1"), told.append)
    assert len(told) >= 2
    assert told == sorted(told)
    assert min(told) >= 0
    assert max(told) <= 1
