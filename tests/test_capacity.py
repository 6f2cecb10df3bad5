"""The capacity search: on fleets whose answer is known, on real runs, and where it must refuse."""

import math
from concurrent.futures import Executor

import numpy as np
import pytest

from simserve.planning import capacity, fleet
from simserve.planning.bottleneck import Bottleneck, busy_time, find_bottleneck, waiting_shares
from simserve.planning.capacity import MEASURES, find_capacity
from simserve.planning.executor import open_executor
from simserve.planning.fleet import find_fleet
from simserve.planning.load import load_of
from simserve.planning.trial import SUSTAINED, Tightest, Trial, attempt, describe, tightest_limit
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario

SCENARIO = """
model: llama-3.1-8b
workload:
  arrivals: {process: poisson, rate: 3}
  input: 512
  output: 64
  num_requests: 300
cluster: {gpu: h100-sxm-80gb}
slo: {percentile: 95, ttft: 500 ms, tpot: 50 ms}
"""


def scenario(*overrides: str) -> Scenario:
    return parse_scenario(SCENARIO, overrides)


@pytest.fixture
def here() -> Executor:
    return open_executor(1)


def ideal_attempt(per_replica: float, *, jitter: float = 0.0):
    """A fleet that holds exactly so many requests/s a replica, a little more with each seed."""

    def attempt_ideal(given: Scenario) -> Trial:
        arrivals = given.workload.arrivals
        load = arrivals.users if arrivals.process == "closed_loop" else arrivals.rate
        holds = load <= given.cluster.replicas * (per_replica + jitter * given.seed)
        limit = Tightest("ttft", 95.0, 500.0, 400.0 if holds else 900.0)
        return Trial(holds, limit, dict.fromkeys(MEASURES, load), None)

    return attempt_ideal


@pytest.fixture
def ideal(monkeypatch: pytest.MonkeyPatch):
    """Replace simulation by an ideal fleet."""

    def use(per_replica: float, *, jitter: float = 0.0) -> None:
        stand_in = ideal_attempt(per_replica, jitter=jitter)
        monkeypatch.setattr(capacity, "attempt", stand_in)
        monkeypatch.setattr(fleet, "attempt", stand_in)
        bound = Bottleneck("kv", {"kv": 0.5}, {"compute": 1.0})
        monkeypatch.setattr(capacity, "find_bottleneck", lambda result, latency: bound)

    return use


@pytest.mark.parametrize("rate", [0.1, 3.0, 1000.0])
def test_capacity_is_found_to_two_percent_from_any_start(ideal, here: Executor, rate: float) -> None:
    ideal(17.3)
    found = find_capacity(scenario(f"workload.arrivals.rate={rate}"), 1, here)
    assert found.interval.mean <= 17.3 <= found.interval.mean * 1.02 + 1e-9
    assert math.isnan(found.interval.low)
    assert (found.load.unit, found.bottleneck.resource) == ("requests/s", "kv")
    assert describe(found.binding) == "p95 ttft 900 ms against 500 ms"


def test_interval_covers_what_the_seeds_found(ideal, here: Executor) -> None:
    ideal(10.0, jitter=1.0)
    found = find_capacity(scenario(), 3, here)
    assert [one.seed for one in found.seeds] == [0, 1, 2]
    assert found.interval.mean == pytest.approx(11.0, rel=0.02)
    assert found.interval.low < 10.0
    assert found.interval.high > 12.0


def test_closed_loop_is_turned_by_its_users_in_whole_numbers(ideal, here: Executor) -> None:
    ideal(37)
    found = find_capacity(scenario("workload.arrivals={process: closed_loop, users: 4}"), 1, here)
    assert (found.load.unit, found.interval.mean, found.seeds[0].fails) == ("users", 37, 38)


@pytest.mark.parametrize(("target", "replicas"), [(5, 1), (20, 2), (101, 11), (1000, 100)])
def test_fleet_is_the_fewest_replicas_that_hold_the_target(ideal, here: Executor, target: float, replicas: int) -> None:
    ideal(10.0)
    plan = scenario("cluster.tensor_parallel=2")
    found = find_fleet(plan, target, find_capacity(plan, 2, here), here)
    assert (found.replicas, found.num_gpus) == (replicas, 2 * replicas)


def test_larger_fleets_get_as_many_more_requests(ideal, here: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    ideal(10.0)
    plan = scenario()
    found = find_capacity(plan, 1, here)
    sizes = {}

    def attempt_and_note(given: Scenario) -> Trial:
        sizes[given.cluster.replicas] = given.workload.num_requests
        return ideal_attempt(10.0)(given)

    monkeypatch.setattr(fleet, "attempt", attempt_and_note)
    find_fleet(plan, 40, found, here)
    assert sizes[4] == 4 * 300


def test_no_load_meets_an_slo_below_a_lone_request(here: Executor) -> None:
    with pytest.raises(ScenarioError, match=r"slo: missed at any load: p95 ttft .* ms against 0.1 ms"):
        find_capacity(scenario("slo.ttft=0.1 ms", "workload.num_requests=20"), 1, here)


def test_run_that_is_too_short_to_fail_is_refused(here: Executor) -> None:
    with pytest.raises(ScenarioError, match="more requests"):
        find_capacity(scenario("workload.num_requests=3", "slo={ttft: 10 s}"), 1, here)


def test_scenario_without_an_slo_is_refused(here: Executor) -> None:
    with pytest.raises(ScenarioError, match="add one"):
        find_capacity(scenario("slo=null"), 1, here)


@pytest.mark.parametrize(
    "arrivals",
    [
        "{process: all_at_once}",
        "{process: ramp, start_rate: 1, end_rate: 2}",
        "{process: piecewise, stages: [{rate: 1, duration: 9}]}",
    ],
)
def test_load_that_cannot_be_held_is_refused(arrivals: str, here: Executor) -> None:
    with pytest.raises(ScenarioError, match="are not"):
        find_capacity(scenario(f"workload.arrivals={arrivals}"), 1, here)


def test_trace_is_turned_by_its_speedup() -> None:
    trace = scenario("workload={trace: {file: traces/azure_conv_2023.csv, format: csv, limit: 100, speedup: 2.0}}")
    load = load_of(trace)
    faster = trace.with_overrides([load.setting(10.0)])
    assert load_of(faster).base == pytest.approx(10.0)
    assert load.base != pytest.approx(10.0)


def test_real_capacity_holds_and_a_little_more_does_not(here: Executor) -> None:
    plan = scenario()
    found = find_capacity(plan, 1, here).seeds[0]
    assert found.fails <= found.holds * 1.02
    for load, holds in ((found.holds, True), (found.fails, False)):
        assert attempt(plan.with_overrides([f"workload.arrivals.rate={load!r}"])).holds is holds
    assert sum(found.bottleneck.step_time.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("metric", ["itl", "tpot"])
def test_requests_that_give_up_are_not_within_the_slo(metric: str, here: Executor) -> None:
    """Two seats, and clients who leave after a second: gaps stay at 8 ms at any load, but 5 % leave from 2.6 a second
    on. A limit on ITL asked only those who had stayed, and held 4.5 a second, where 30 % leave."""
    plan = scenario("engine.max_num_seqs=2", "workload.client={timeout: 1 s, retries: 0}", f"slo={{{metric}: 500 ms}}")
    found = find_capacity(plan, 1, here).seeds[0]
    assert found.holds == pytest.approx(2.6, rel=0.02)
    assert describe(found.binding) == f"p95 {metric} without bound against 500 ms"
    for load, holds in ((found.holds, True), (found.fails, False)):
        statuses = attempt(plan.with_overrides([f"workload.arrivals.rate={load!r}"])).summary["statuses"]
        assert (statuses["timed_out"] < 0.05 * 300) is holds


def test_same_answer_in_this_process_and_in_others(here: Executor) -> None:
    plan = scenario("workload.num_requests=100")
    with open_executor(2) as elsewhere:
        assert find_capacity(plan, 2, here) == find_capacity(plan, 2, elsewhere)


def test_few_kv_blocks_bind_as_kv() -> None:
    few = scenario("engine.num_gpu_blocks=200", "engine.max_model_len=2048", "workload.arrivals.rate=60")
    found = find_bottleneck(simulate(few), "ttft")
    assert found.resource == "kv"
    assert found.waiting["seats"] == 0


def test_few_seats_bind_as_seats() -> None:
    few = scenario("engine.max_num_seqs=2", "workload.arrivals.rate=60")
    assert find_bottleneck(simulate(few), "ttft").resource == "seats"
    assert find_bottleneck(simulate(few), SUSTAINED).resource == "seats"


def test_limit_on_tpot_is_bound_by_step_time_even_where_requests_wait() -> None:
    few = scenario("engine.max_num_seqs=2", "workload.arrivals.rate=60")
    found = find_bottleneck(simulate(few), "tpot")
    assert found.resource == max(found.step_time, key=lambda name: found.step_time[name])


def test_decoding_alone_is_bound_by_bandwidth_and_long_prompts_by_compute() -> None:
    decoding = simulate(scenario("workload.input=16", "workload.output=500", "workload.arrivals.rate=20"))
    prompts = simulate(scenario("workload.input=4000", "workload.output=1"))
    assert find_bottleneck(decoding, "tpot").resource == "bandwidth"
    assert find_bottleneck(prompts, "tpot").resource == "compute"


def test_busy_time_is_the_time_in_which_the_engine_is_not_idle() -> None:
    steps = {
        "replica": np.array([0, 0, 0, 1]),
        "start": np.array([0.0, 1.0, 10.0, 0.5]),
        "end": np.array([2.0, 4.0, 11.0, 1.0]),
    }
    assert busy_time(steps).tolist() == [2.0, 2.0, 1.0, 0.5]


def test_waiting_shares_of_a_quiet_run_are_zero() -> None:
    assert waiting_shares(simulate(scenario("workload.arrivals.rate=0.1", "workload.num_requests=5"))) == {
        "seats": 0,
        "budget": 0,
        "kv": 0,
    }


def test_tightest_limit_is_the_one_exceeded_most() -> None:
    def limits(**values: float | None) -> list[dict]:
        table = {name: {"limit_ms": 100.0, "value_ms": value, "met": False} for name, value in values.items()}
        return [{"percentile": 95.0, "limits": table}]

    assert tightest_limit(limits(ttft=120.0, tpot=150.0)).condition == "tpot"
    assert tightest_limit(limits(ttft=None, tpot=150.0)).condition == "ttft"
    assert describe(tightest_limit(limits(ttft=None))) == "p95 ttft without bound against 100 ms"
    assert describe(Tightest(SUSTAINED)) == "the queue grows: arrivals outrun completions"
