"""Laws of every run: nothing is lost, nothing happens before its cause, nobody idles, and nothing is left to chance."""

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario
from single_steps import single_steps, ticks

from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.request import Request
from simserve.report.itl import pooled_gaps
from simserve.simulation import scheduler_config, simulate
from simserve.spec.result import COMPLETED, REJECTED, Result
from simserve.spec.scenario import Scenario
from simserve.workload.recorded import trace_of
from simserve.workload.trace_writer import write_trace
from simserve.workload.workload import build_workload

STEPWISE = {"resolution": "steps"}


def of_replica(result: Result, index: int) -> dict[str, Any]:
    """The step log of one replica."""
    rows = result.steps["replica"] == index
    return {name: column[rows] for name, column in result.steps.items()}


# Conservation: tests/test_conservation.py keeps books; what is left is in the records


@given(scenarios())
@settings(max_examples=50)
def test_gaps_between_tokens_fill_the_time_from_the_first_to_the_last(question: Scenario) -> None:
    """Over all completed requests: n - 1 gaps for n tokens, and their sum is finish - first_token, to the tick."""
    result = simulate(question)
    requests = result.requests
    done = requests["status"] == COMPLETED
    count = total = 0
    for gap, weight in pooled_gaps(result, done):
        count += int(weight.sum())
        total += int((gap * weight).sum())
    assert count == (requests["output_len"][done] - 1).sum()
    assert total == (ticks(requests["finish"][done]) - ticks(requests["first_token"][done])).sum()


@given(scenarios(run={"max_time": None}))
@settings(max_examples=50)
def test_every_run_ends_with_everyone_served_or_rejected(question: Scenario) -> None:
    """Rejected are exactly the prompts that leave no room for a token; the others get all their tokens."""
    requests = simulate(question).requests
    longest = question.engine.max_model_len
    rejected = requests["input_len"] >= longest
    np.testing.assert_array_equal(requests["status"], np.where(rejected, REJECTED, COMPLETED))
    wanted = build_workload(question).output_len
    room = longest - requests["input_len"]
    np.testing.assert_array_equal(requests["output_len"], np.where(rejected, 0, np.minimum(wanted, room)))


# Time


PREEMPTED_AT_THE_END = (
    *("workload.num_requests=10", "workload.arrivals.rate=100", "run.max_time=2"),
    *("workload.input={distribution: uniform, min: 1, max: 40}", "engine.max_model_len=256"),
    *("workload.output={distribution: uniform, min: 32, max: 128}", "engine.max_num_batched_tokens=64"),
    *("engine.block_size=1", "engine.num_gpu_blocks=258", "engine.scheduler_reserve_full_isl=false"),
    *("engine.enforce_eager=true", "cost.host={per_step: 20 ms, per_sequence: 0.1 ms}"),
)
"""The GPU ends the last step before the host, busier for a preemption, knows the tokens of the step before."""


@given(scenarios())
@example(scenario(*PREEMPTED_AT_THE_END))
@settings(max_examples=50)
def test_nothing_happens_before_its_cause(question: Scenario) -> None:
    """arrival <= engine_arrival <= scheduled <= first_token <= finish, as far as each came; and log times only rise."""
    result = simulate(question)
    requests = result.requests
    moments = [requests[name] for name in ("arrival", "engine_arrival", "scheduled", "first_token", "finish")]
    for before, after in pairwise(moments):
        came = ~np.isnan(after)
        assert not np.isnan(before[came]).any()
        assert (before[came] <= after[came]).all()
    done = requests["status"] == COMPLETED
    assert not np.isnan(requests["finish"][done]).any()
    assert np.isnan(requests["finish"][~done]).all()
    assert (requests["first_step"][done] <= requests["last_step"][done]).all()
    for index in range(question.cluster.replicas):
        assert_monotone(of_replica(result, index))


def assert_monotone(log: dict[str, Any]) -> None:
    for name in ("start", "end", "first_token_time"):
        assert (np.diff(log[name]) >= 0).all()
    assert (log["start"] < log["end"]).all()
    assert (log["gap"] >= 0).all()
    assert (log["gap_growth"] >= 0).all()
    np.testing.assert_array_equal(log["step"], np.cumsum(log["steps"]) - log["steps"])


@given(scenarios())
@settings(max_examples=50)
def test_tokens_are_known_no_earlier_than_the_gpu_is_done(question: Scenario) -> None:
    result = simulate(question)
    last = np.cumsum(result.steps["steps"]) - 1
    rounded = 1  # tick, by which an end in seconds may be off after some minutes
    assert (single_steps(result)["tokens_known"][last] >= ticks(result.steps["end"]) - rounded).all()


@given(scenarios(run=STEPWISE))
@settings(max_examples=50)
def test_the_engine_idles_only_while_nobody_is_there(question: Scenario) -> None:
    """Between the end of a step and the start of the next one, only an empty engine lets time pass: each request that
    reached it before has had its last token, and the next step starts when someone comes."""
    result = simulate(question)
    requests = result.requests
    lead = ticks(np.array(question.cost.host.update)) if question.engine.async_scheduling else 0
    delivery = ticks(np.array(question.cost.host.delivery))
    for index in range(question.cluster.replicas):
        mine = requests["replica"] == index
        came, gone = ticks(requests["engine_arrival"][mine]), ticks(np.nan_to_num(requests["finish"][mine], nan=8e5))
        log = of_replica(result, index)
        for end, start in zip(ticks(log["end"])[:-1], ticks(log["start"])[1:], strict=True):
            if start > end + lead:
                assert start in came
                assert (gone[came < start] - delivery <= start).all()


# Determinism


CROWD = (
    *("cluster.replicas=3", "cluster.router=random", "workload.arrivals.rate=60"),
    *("engine.num_gpu_blocks=700", "engine.max_model_len=1024", "engine.scheduling_policy=priority"),
    "workload.shared_prefix={groups: 3, length: 100}",
    "workload.classes=[{name: chat, share: 0.7, priority: 1}, {name: batch, share: 0.3, output: 300}]",
)


def test_a_run_leaves_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    """Same seed, two fresh processes, two hash seeds: every file of the run folder is the same to the last byte."""
    script = (
        "import sys; from pathlib import Path; from simserve.spec.load import load_scenario;"
        "from simserve.simulation import simulate; from simserve.report.write_run import write_run;"
        "write_run(simulate(load_scenario(sys.argv[1])), Path(sys.argv[2]))"
    )
    question = tmp_path / "question.yaml"
    question.write_text(scenario(*CROWD).to_yaml())
    folders = []
    for hash_seed in ("1", "2"):
        out = tmp_path / f"out{hash_seed}"
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", script, str(question), str(out)], check=True, env=environment)
        folders.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()})
    assert len(folders[0]) >= 5
    assert folders[0] == folders[1]


def test_another_seed_is_another_run() -> None:
    one, other = simulate(scenario(*CROWD)), simulate(scenario(*CROWD, "seed=1"))
    assert not np.array_equal(one.requests["arrival"], other.requests["arrival"])


@pytest.mark.parametrize("router", ["random", "least_requests"])
def test_a_change_of_router_changes_no_request(router: str) -> None:
    """One random stream for each source of randomness: what is sent, and when, is the same to the last bit."""
    one = simulate(scenario(*CROWD, "cluster.router=round_robin")).requests
    other = simulate(scenario(*CROWD, f"cluster.router={router}")).requests
    for name in ("arrival", "engine_arrival", "input_len", "output_len", "class_index"):
        np.testing.assert_array_equal(one[name], other[name])
    assert not np.array_equal(one["replica"], other["replica"])


def assert_same_records(one: Result, other: Result, *besides: str) -> None:
    for name in one.requests.keys() - set(besides):
        np.testing.assert_array_equal(one.requests[name], other.requests[name], err_msg=name)
    log, other_log = single_steps(one), single_steps(other)
    for name in log:
        np.testing.assert_array_equal(log[name], other_log[name], err_msg=name)
    for name in one.gaps:
        np.testing.assert_array_equal(one.gaps[name], other.gaps[name], err_msg=name)


@given(scenarios())
@settings(max_examples=50)
def test_1032_run_is_replay(question: Scenario) -> None:
    """inference-sim#1032, #1184, #1201: the workload of a run, saved as a trace and replayed, leaves the same records.

    Classes and sessions may get other numbers in a trace.
    """
    workload = build_workload(question)
    assume(not workload.users and (workload.prefix_group < 0).all())
    with TemporaryDirectory() as folder:
        write_trace(trace_of(workload), Path(folder) / "trace.csv")
        replay = question.with_overrides([f"workload={{trace: {{file: {folder}/trace.csv, format: csv}}}}"])
        assert_same_records(simulate(question), simulate(replay), "class_index", "session")


def test_the_arrivals_of_a_closed_loop_can_be_replayed(tmp_path: Path) -> None:
    """What the users of a closed loop sent, sent again by the clock, is served alike."""
    loop = scenario(
        *("workload.arrivals={process: closed_loop, users: 5, think_time: 30 ms}", "cost.constant_step=10 ms"),
        *("engine.max_num_seqs=3", "workload.output={distribution: uniform, min: 1, max: 40}"),
    )
    result = simulate(loop)
    sent = [f"{time!r}" for time in result.requests["arrival"].tolist()]
    lengths = zip(result.requests["input_len"].tolist(), result.requests["output_len"].tolist(), strict=True)
    rows = [f"{time},{input_len},{output_len}" for time, (input_len, output_len) in zip(sent, lengths, strict=True)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["arrival,input_len,output_len", *rows]))
    replay = loop.with_overrides([f"workload={{trace: {{file: {trace}, format: csv}}}}"])
    assert_same_records(result, simulate(replay))


# What a decision may know


def decisions(question: Scenario, output_len: list[int], pace: int) -> list[Any]:
    """What the scheduler decides up to the first step that gives a last token; `pace` requests come a step."""
    scheduler = VllmV1(scheduler_config(question, question.engine.num_gpu_blocks or 0))
    workload = build_workload(question)
    limit = question.engine.max_model_len
    columns = (workload.input_len, workload.max_tokens, workload.priority)
    rows = [row for row in zip(range(len(workload)), *(c.tolist() for c in columns), strict=True) if row[1] < limit]
    decided: list[Any] = []
    in_flight = None
    while len(decided) < 300:
        for row, input_len, max_tokens, priority in rows[:pace]:
            room = min(max_tokens, limit - input_len)
            scheduler.add(Request(row, len(decided), input_len, min(output_len[row], room), room, priority))
        del rows[:pace]
        plan = scheduler.schedule()
        decided.append(described(plan, scheduler))
        if plan.finishing:
            return decided
        if not question.engine.async_scheduling:
            in_flight = plan
        if in_flight is not None:
            scheduler.complete(in_flight)
        in_flight = plan
    return decided


def described(plan: Any, scheduler: VllmV1) -> Any:
    names = [[request.id for request in requests] for requests in (plan.new, plan.resumed, plan.preempted)]
    chunks = [(chunk.request.id, chunk.num_tokens, chunk.history) for chunk in plan.chunks]
    queues = [[request.id for request in requests] for requests in (scheduler.ledger.running, scheduler.ledger.waiting)]
    return names, chunks, plan.num_decodes, plan.context, queues, scheduler.ledger.pool.num_free


@given(scenarios(workload={"max_tokens": 150}), st.integers(1, 9), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_decisions_do_not_know_how_long_an_answer_will_be(question: Scenario, pace: int, random: Any) -> None:
    """Two workloads that differ in `output_len` alone are decided alike until somebody stops."""
    size = len(build_workload(question))
    one, other = ([random.randint(1, 150) for _ in range(size)] for _ in range(2))
    same = zip(decisions(question, one, pace), decisions(question, other, pace), strict=False)
    for number, (left, right) in enumerate(same):
        assert left == right, number


# Linear work


LOADS = {
    "open": ("workload.arrivals.rate=20",),
    "closed": ("workload.arrivals={process: closed_loop, users: 50, think_time: 1 s}",),
    "full pool": ("workload.arrivals.rate=20", "engine.max_model_len=1024", "engine.num_gpu_blocks=1200"),
    "offline": ("workload.arrivals={process: all_at_once}",),
}


@pytest.mark.parametrize("load", LOADS)
def test_work_is_linear(load: str) -> None:
    """VllmV1 calls and events per request grow by at most a tenth from 5,000 to 10,000 to 20,000 requests."""
    effort: dict[str, list[float]] = {"events": [], "scheduler_calls": []}
    for count in (5_000, 10_000, 20_000):
        meta = simulate(scenario(*LOADS[load], f"workload.num_requests={count}")).meta
        for name, values in effort.items():
            values.append(float(str(meta[name])) / count)
    for values in effort.values():
        assert max(values) <= 1.1 * values[0]
