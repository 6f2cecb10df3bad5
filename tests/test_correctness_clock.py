"""Cases that other simulators got wrong: clock, queueing, conservation, termination, metrics.

Each test carries the number of the report; `test_correctness_table.py` lists all cases and what covers them.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from scenario_text import scenario
from served import ASYNC, CONSTANT, OFFLINE, SYNC, constant, milliseconds, serve
from single_steps import ticks

from simserve.engine.step_log import FINISH_FIELDS
from simserve.report.metrics import engine_ttft, ttft
from simserve.report.summary import summarize
from simserve.simulation import Simulation, simulate
from simserve.spec.result import COMPLETED, STATUSES, UNFINISHED, Result
from simserve.spec.scenario import Scenario

FULL_POOL = (
    *("workload.input={distribution: uniform, min: 1, max: 40}", "workload.num_requests=60", OFFLINE),
    *("workload.output={distribution: uniform, min: 60, max: 200}", "engine.max_model_len=256"),
    *("engine.num_gpu_blocks=40", "engine.max_num_seqs=32"),
)
"""Many short prompts with long answers: about one preemption a request."""


# Clock, work conservation, queueing


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.parametrize("resolution", ["runs", "steps"])
def test_319_the_second_of_two_starts_when_the_first_is_done(mode: str, resolution: str) -> None:
    """inference-sim#319, #325, #326: with an empty batch and requests waiting, nothing happened until the next arrival.
    One seat, two requests at 0, nobody else ever comes. (#330: mean waits, see tests/test_theory.py.)"""
    result = serve([(0, 10, 5), (0, 10, 3)], mode, "engine.max_num_seqs=1", f"run.resolution={resolution}")
    assert milliseconds(result, "scheduled") == [0, 50]
    assert milliseconds(result, "finish") == [50, 80]


@pytest.mark.parametrize("overhead", [0.0005, 0.004])
def test_480_host_overhead_lengthens_every_step_by_itself(overhead: float) -> None:
    """inference-sim#480, #482: host overhead h turns a throughput of B/s into B/(s + h), exactly: a saturated engine
    without async scheduling runs the same steps, each of them h longer."""
    lengths = (SYNC, OFFLINE, "workload.num_requests=16", "workload.input=16", "workload.output=200")
    host = "cost.host={{per_sequence: 0, update: 0, per_step: {}, front_end_per_request: 0, delivery: 0}}"
    without, with_host = (simulate(scenario(*lengths, host.format(h))) for h in (0, overhead))
    steps = without.meta["total_steps"]
    assert isinstance(steps, int)
    assert with_host.meta["total_steps"] == steps
    added = ticks(with_host.requests["finish"]).max() - ticks(without.requests["finish"]).max()
    assert added == steps * ticks(np.array(overhead))


def test_40_overload_serves_at_the_saturated_rate_while_the_queue_grows() -> None:
    """LLMServingSim#40: right under light load, diverging as soon as somebody waits. At 1.5 times the saturated rate
    of a real cost model, completions come at the saturated rate, and requests pile up by the difference, within 5 %."""
    engine = ("engine.max_num_seqs=64", "workload.output={distribution: uniform, min: 1, max: 255}")
    offline = simulate(scenario(OFFLINE, "workload.num_requests=4000", *engine))
    saturated = rate_of_completions(offline, 10, 60)
    load = f"workload.arrivals={{process: constant, rate: {1.5 * saturated}}}"
    overload = simulate(scenario(load, "workload.num_requests=6000", *engine))
    arrival, finish = overload.requests["arrival"], np.sort(overload.requests["finish"])
    half, end = arrival[-1] / 2, arrival[-1]
    assert rate_of_completions(overload, half, end) == pytest.approx(saturated, rel=0.02)
    in_system = [np.searchsorted(arrival, time) - np.searchsorted(finish, time) for time in (half, end)]
    assert in_system[1] - in_system[0] == pytest.approx(0.5 * saturated * (end - half), rel=0.05)


def rate_of_completions(result: Result, start: float, end: float) -> float:
    finish = result.requests["finish"]
    return float(np.sum((finish > start) & (finish <= end)) / (end - start))


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.parametrize("resolution", ["runs", "steps"])
def test_2900_a_preempted_request_completes_once(mode: str, resolution: str) -> None:
    """semantic-router#2900, #2890: the old completion of a preempted request still fired. Among many preemptions each
    request finishes exactly once, and the run ends. (Seats are counted in every event by tests/audit.py.)"""
    simulation = Simulation(constant(*FULL_POOL, mode, f"run.resolution={resolution}"))
    simulation.clock.run()
    finished = np.array(simulation.replicas[0].log.finishes).reshape(-1, len(FINISH_FIELDS))
    result = simulation.run()  # all has happened: this only makes the columns
    assert result.requests["num_preemptions"].sum() > 30
    assert sorted(finished[:, FINISH_FIELDS.index("request_id")].tolist()) == list(range(60))
    assert (result.requests["status"] == COMPLETED).all()


def test_a_fleet_of_slots_has_the_capacity_of_its_slots() -> None:
    """fleet-sim (not filed): n slots, each with the service time divided by n. Saturated throughput is n / E[S]:
    the batch shares the step, not the time of one request. (Waits: the slotted M/M/k queue of tests/test_theory.py.)"""
    answers = "workload.output={distribution: uniform, min: 1, max: 39}"
    result = simulate(constant(SYNC, OFFLINE, answers, "engine.max_num_seqs=8", "workload.num_requests=4000"))
    finish = np.sort(result.requests["finish"])
    middle = np.interp([0.2, 0.8], np.linspace(0, 1, finish.size), finish)
    assert rate_of_completions(result, *middle) == pytest.approx(8 / (20 * 0.01), rel=0.02)


# Conservation, termination, drops


def test_349_kv_for_two_of_three_sequences_takes_one_preemption() -> None:
    """inference-sim#349: a list changed while walked over, 102,000 preemptions. By hand: 8 blocks of 16; three prompts
    of 32 tokens take 6; the third block of each is due in one step, where two get theirs and the last of `running` is
    preempted. It needs 3 blocks and finds 2 free, so it waits for the others to finish: one preemption in all."""
    rows = [(0, 32, 32)] * 3
    pool = ("engine.max_model_len=128", "engine.num_gpu_blocks=9", "engine.max_num_seqs=8")
    for mode in (SYNC, ASYNC):
        result = serve(rows, mode, *pool)
        assert result.requests["num_preemptions"].tolist() == [0, 0, 1]
        assert (result.requests["status"] == COMPLETED).all()
        assert result.requests["output_len"].tolist() == [32, 32, 32]


@pytest.mark.parametrize("max_time", ["50 ms", "2 s", "1000 s"])
def test_183_whoever_arrived_is_counted_and_nobody_else(max_time: str) -> None:
    """inference-sim#183, #498, #237: requests dropped silently, and arrivals beyond the horizon counted. (At every
    event: tests/test_conservation.py.)"""
    result = simulate(
        scenario(*FULL_POOL, "workload.arrivals={process: poisson, rate: 20}", f"run.max_time={max_time}")
    )
    requests, summary = result.requests, summarize(result)
    arrived = ~np.isnan(requests["arrival"])
    assert (requests["arrival"][arrived] < float(max_time.replace("50 ms", "0.05").split(" ")[0])).all()
    assert summary["num_prompts"] == arrived.sum() == sum(summary["statuses"].values())
    assert set(summary["statuses"]) == set(STATUSES)
    assert (requests["status"][~arrived] == UNFINISHED).all()


@pytest.mark.parametrize(("caching", "prefill_tokens"), [("true", 48 + 48 + 17), ("false", 48 + 48 + 65)])
def test_1057_what_a_preempted_request_computed_can_be_hit_again(caching: str, prefill_tokens: int) -> None:
    """inference-sim#1057, #1079: hashes were destroyed on free, so a preempted request computed all of it anew, and was
    preempted again; 858 of 5,000 finished. By hand: 8 blocks of 16, two prompts of 48 tokens. Both hold 4 blocks when
    the first needs a fifth (65 tokens): the second is preempted, its last block goes to the first. When that has
    finished, the second hits its other 3 blocks, 48 tokens, and computes 17 of its 65 again. (That the replica gains
    tokens between any two preemptions of one request is a law of tests/audit.py.)"""
    pool = ("engine.max_model_len=128", "engine.num_gpu_blocks=9", f"engine.enable_prefix_caching={caching}")
    result = serve([(0, 48, 33), (0, 48, 40)], SYNC, *pool)
    assert result.requests["num_preemptions"].tolist() == [0, 1]
    assert result.steps["prefill_tokens"].sum() == prefill_tokens
    assert (result.requests["status"] == COMPLETED).all()


def test_1061_a_failed_admission_changes_nothing() -> None:
    """inference-sim#1061, #1065, #963, #200: roll-back after a failed allocation lost blocks. Step after step the head
    does not fit, and free blocks are what the running request leaves, to the block; when that has finished, everything
    is free but what the head holds. (After every event: tests/audit.py.)"""
    pool = ("engine.max_model_len=128", "engine.num_gpu_blocks=9", "run.resolution=steps")
    result = serve([(0, 64, 33), (0, 80, 1)], SYNC, *pool)
    running_alone = result.steps["decodes"] == 1
    held = -(-(64 + np.arange(1, 33)) // 16)
    assert result.steps["free_blocks"][running_alone].tolist() == (8 - held).tolist()
    assert result.steps["waiting"][running_alone].tolist() == [1] * 32
    assert result.steps["free_blocks"][-1] == 8 - 5


# Metrics


def test_288_client_and_server_differ_by_network_and_front_end() -> None:
    """aisimulate#288, vllm#54101: two first-token times of different ends of the wire. In a closed loop of one the
    client's TTFT exceeds the engine's by front end and delivery, to the tick; both are in the summary."""
    door = "{front_end_per_request: 3 ms, front_end_per_token: 20 us, delivery: 700 us}"
    loop = "workload.arrivals={process: closed_loop, users: 1}"
    result = simulate(scenario(f"cost={{constant_step: 10 ms, host: {door}}}", loop, "workload.input=100"))
    np.testing.assert_allclose(ttft(result.requests) - engine_ttft(result), 0.003 + 0.002 + 0.0007, rtol=0, atol=1e-9)
    summary = summarize(result)
    assert summary["mean_ttft_ms"] - summary["mean_engine_ttft_ms"] == pytest.approx(5.7)


def test_289_the_budget_is_tokens_not_blocks() -> None:
    """aisimulate#289: the chunk budget was rounded to a page. Of a prompt of 120 tokens a budget of 50 takes 50."""
    result = serve([(0, 120, 1)], "engine.max_num_batched_tokens=50", "engine.max_num_seqs=4")
    assert result.steps["prefill_tokens"].tolist() == [50, 50, 20]


@contextmanager
def counted_calls() -> Iterator[Callable[[], int]]:
    """Function calls made meanwhile, of Python and of C: a clock that is the same on every machine."""
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, arg: Any) -> None:
        calls[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield lambda: calls["call"] + calls["c_call"]
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("load", [(), (OFFLINE,), FULL_POOL])
def test_1381_twice_the_requests_take_twice_the_work(load: tuple[str, ...]) -> None:
    """inference-sim#1381: quadratic statistics, 87 s for 5,000 requests. Function calls of a run and its summary grow
    no faster than the requests; the numpy operations among them work on whole columns. (At 5,000 to 20,000 requests:
    tests/test_laws.py.)"""

    def calls(count: int) -> int:
        question = constant(*load, f"workload.num_requests={count}")
        with counted_calls() as so_far:
            summarize(simulate(question))
            return so_far()

    calls(10)
    assert calls(1200) <= 2.3 * calls(600)


def test_watching_a_run_changes_nothing() -> None:
    """LLMServingSim (change log): throughput 0 when the log interval was above 1. What is told on the way, and how
    coarsely, has no part in what is recorded."""
    question = scenario("workload.num_requests=5000", "workload.output=4")
    told: list[float] = []
    watched, alone = simulate(question, told.append), simulate(question)
    assert told
    assert summarize(watched) == summarize(alone)


@pytest.mark.parametrize("name", ["start", "end"])
def test_times_of_the_engine_need_no_tolerance(name: str) -> None:
    """The whole kind of fault: times that drift. Two thousand steps of 0.1 ms end at whole ticks, not near them."""
    question = scenario(CONSTANT.replace("10 ms", "0.1 ms"), OFFLINE, "workload.num_requests=1", "workload.output=2000")
    assert run_times(question, name) == [1000 * step + (1000 if name == "end" else 0) for step in range(2000)]


def run_times(question: Scenario, name: str) -> list[float]:
    steps = simulate(question.with_overrides(["run.resolution=steps", SYNC])).steps
    return [time / 1e6 for time in ticks(steps[name]).tolist()]
