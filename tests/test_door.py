"""API servers: what a request waits for them, and that they neither idle beside work nor work twice."""

from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_scenarios import scenarios
from scenario_text import scenario
from single_steps import ticks
from test_skipping import assert_same, both_ways

from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import TIMED_OUT
from simserve.spec.scenario import Scenario
from simserve.workload.workload import build_workload

Ticks = NDArray[np.int64]

BUSY = 0.005
BUSY_TICKS = int(ticks(np.array(BUSY)))
HOST = f"{{front_end_per_request: 0, front_end_per_token: 0, delivery: 0, front_end_busy: {BUSY}}}"
DOOR = f"cost={{constant_step: 1 ms, host: {HOST}}}"
AT_ONCE = "workload.arrivals={process: all_at_once}"


def read(question: Scenario) -> tuple[Ticks, Ticks]:
    """When each request was sent, and when an API server had read it; ticks."""
    requests, host = simulate(question).requests, question.cost.host
    later = ticks(np.array(host.front_end_per_request)) + ticks(np.array(host.front_end_per_token)) * np.array(
        requests["input_len"]
    )
    return ticks(requests["arrival"]), ticks(requests["engine_arrival"]) - later


def rounds(arrival: Ticks, busy: int, num_servers: int) -> Ticks:
    """When requests are read, by the rule told in other words: a server that is through with a round takes all who are
    there, those of that very tick included, and lets them go together; who comes goes to the least work."""
    free, queues = [0] * num_servers, [list[int]() for _ in range(num_servers)]
    done = np.zeros_like(arrival)

    def begin(server: int, at: int) -> None:
        free[server] = at + busy * len(queues[server])
        done[queues[server]] = free[server]
        queues[server].clear()

    for now in np.unique(arrival).tolist():
        for server in range(num_servers):
            if queues[server] and free[server] < now:
                begin(server, free[server])
        for row in np.flatnonzero(arrival == now).tolist():
            work = [max(free[each] - now, 0) + busy * len(queues[each]) for each in range(num_servers)]
            queues[work.index(min(work))].append(row)
        for server in range(num_servers):
            if queues[server] and free[server] <= now:
                begin(server, now)
    for server in range(num_servers):
        if queues[server]:
            begin(server, free[server])
    return done


BY_THE_CLOCK: dict[str, Any] = {
    "workload": {"sessions": None, "shared_prefix": None, "input": 5, "output": 3},
    "run": {"max_time": None},
}


@given(scenarios(**BY_THE_CLOCK), st.sampled_from([1e-4, BUSY, 0.1]), st.integers(1, 3))
@settings(max_examples=60)
def test_requests_are_read_in_rounds(question: Scenario, busy: float, num_servers: int) -> None:
    """Of any traffic by the clock, over any number of servers, to the tick."""
    question = question.with_overrides([f"cost.host.front_end_busy={busy}", f"cluster.api_servers={num_servers}"])
    sent, done = read(question)
    known = build_workload(question).arrival >= 0
    if known.all():
        np.testing.assert_array_equal(done, rounds(sent, int(ticks(np.array(busy))), num_servers))


def first_come_first_served(arrival: Ticks) -> Ticks:
    """When each would be done by a server that takes one after the other (Lindley 1952)."""
    finish, done = 0, []
    for at in arrival.tolist():
        finish = max(finish, at) + BUSY_TICKS
        done.append(finish)
    return np.array(done)


@pytest.mark.parametrize("load", [0.3, 0.8, 1.2])
def test_a_server_idles_only_without_work(load: float) -> None:
    """Work is conserved: busy periods are those of first come, first served. Within one a round makes some wait for the
    last of it, and nobody longer than to the end of the busy period."""
    sent, done = read(scenario(DOOR, f"workload.arrivals.rate={load / BUSY}", "workload.num_requests=2000"))
    one_by_one = first_come_first_served(sent)
    ends = np.append(one_by_one[:-1] <= sent[1:], True)
    np.testing.assert_array_equal(done[ends], one_by_one[ends])
    end_of_period = one_by_one[ends][np.searchsorted(np.flatnonzero(ends), np.arange(len(sent)))]
    assert np.all((one_by_one <= done) & (done <= end_of_period))
    assert np.any(done > one_by_one)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_mean_time_at_the_door_is_pollaczek_and_khinchines_and_the_rest_of_a_round(load: float) -> None:
    """Poisson arrivals at load r: s + r s / (2 (1 - r)) to be done, one after the other; and those behind in the same
    round, r^2 s / (2 (1 - r^2)): of a round of n, the next is Poisson(r n), or 1 after a pause, so that
    E[N (N - 1)] = r^2 E[N^2]. The 99.9 % interval of 20 runs covers the sum and not the first part alone."""
    service = ("workload.output=1", "engine.max_num_seqs=512", "workload.num_requests=4000")
    means = []
    for seed in range(20):
        sent, done = read(scenario(DOOR, f"workload.arrivals.rate={load / BUSY}", f"seed={seed}", *service))
        means.append((done - sent)[400:].mean() / BUSY_TICKS)
    half_width = 3.8834 * np.std(means, ddof=1) / sqrt(len(means))
    one_by_one = 1 + load / (2 * (1 - load))
    expected = one_by_one + load**2 / (2 * (1 - load**2))
    assert abs(np.mean(means) - expected) <= half_width, (np.mean(means), expected, half_width)
    assert np.mean(means) - one_by_one > half_width


def test_a_burst_reaches_the_engine_when_all_of_it_is_read() -> None:
    """A hundred requests at once, whatever their prompts; with two servers each has half of them."""
    for num_servers in (1, 2):
        sent, done = read(scenario(DOOR, AT_ONCE, f"cluster.api_servers={num_servers}"))
        np.testing.assert_array_equal(done - sent, 100 * BUSY_TICKS // num_servers)


def test_each_replica_has_a_server_unless_stated() -> None:
    _, done = read(scenario(DOOR, AT_ONCE, "cluster.replicas=4"))
    np.testing.assert_array_equal(done, 25 * BUSY_TICKS)


@given(st.integers(1, 9), st.sampled_from([0, 0.005, 0.02]), st.booleans())
@settings(max_examples=25)
def test_users_wait_at_the_door_alike_step_by_step(users: int, think_time: float, asynchronous: bool) -> None:
    """Whose next request meets a round at its very tick must not depend on how the engine's steps are taken."""
    loop = f"workload.arrivals={{process: closed_loop, users: {users}, think_time: {think_time}}}"
    answers = "workload.output={distribution: uniform, min: 1, max: 30}"
    engine = ("engine.max_num_seqs=4", f"engine.async_scheduling={str(asynchronous).lower()}")
    assert_same(*both_ways(scenario(DOOR, loop, answers, *engine, "workload.num_requests=60")))


def test_who_hangs_up_at_the_door_has_cost_its_work() -> None:
    """Twice as many come as can be read, and leave after 30 ms: nobody who was still there is read sooner for that."""
    load = ("workload.arrivals={process: constant, rate: 400}", "workload.num_requests=40", "workload.output=1")
    requests = simulate(scenario(DOOR, *load, "workload.client={timeout: 30 ms, retries: 0}")).requests
    sent, reached = ticks(requests["arrival"]), ~np.isnan(requests["engine_arrival"])
    assert 5 < reached.sum() < 35
    assert (requests["status"][~reached] == TIMED_OUT).all()
    expected = rounds(sent, BUSY_TICKS, 1)
    np.testing.assert_array_equal(ticks(requests["engine_arrival"])[reached], expected[reached])
    assert np.all((expected - sent)[~reached] >= ticks(np.array(0.03)))


def test_what_nobody_had_read_at_the_end_has_not_reached_the_engine() -> None:
    requests = simulate(scenario(DOOR, AT_ONCE, "workload.num_requests=9", "run.max_time=40 ms")).requests
    assert (requests["arrival"] == 0).all()
    assert np.isnan(requests["scheduled"]).all()


def test_each_replica_that_takes_prompts_has_a_server() -> None:
    assert scenario("cluster.replicas=3").cluster.num_api_servers == 3
    pools = "cluster.pools={prefill: {replicas: 2}, decode: {replicas: 3}}", "cluster.kv_link={bandwidth: 50 GB/s}"
    assert scenario(*pools).cluster.num_api_servers == 2
    assert scenario(DOOR, *pools, "cluster.api_servers=5").cluster.num_api_servers == 5


def test_servers_that_are_never_busy_are_refused() -> None:
    with pytest.raises(ScenarioError, match="front_end_busy"):
        scenario("cluster.api_servers=2")
