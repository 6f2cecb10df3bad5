"""Replicas that share experts step together: what a step of the group takes, and what that changes for whom."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario
from served import served_once
from test_pipeline import assert_causal
from test_skipping import assert_same, both_ways

from simserve.cluster.pool import Pool
from simserve.cost import StepTime, build_step_cost
from simserve.cost.peers import PeerCost
from simserve.engine.pace.ranks import Lockstep, Rank
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.replica import Replica
from simserve.report.summary import summarize
from simserve.simulation import Simulation, scheduler_config, simulate
from simserve.simulation.replicas import build_replica
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, UNFINISHED, Result
from simserve.spec.scenario import Scenario

SHARED = ("model=qwen3-30b-a3b", "cluster.expert_parallel={data_parallel: 2}")
PAIR = (*SHARED, "cluster.replicas=2")
TEN_MS = "cost={constant_step: 10ms, host: {front_end_per_request: 0, front_end_per_token: 0, delivery: 0}}"
groups = st.tuples(scenarios(), st.sampled_from([2, 4])).map(
    lambda drawn: drawn[0].with_overrides([*SHARED, f"cluster.replicas={drawn[1]}"])
)


class OneRank(Simulation):
    """A fleet whose every replica is a group of its own."""

    def _replicas(self, pool: Pool, listener: Any, fetch: Any) -> list[Replica]:
        config = scheduler_config(pool.scenario, pool.ledger.num_gpu_blocks)
        group = Lockstep(self.clock, pool.cost, asynchronous=config.async_scheduling)
        return [Replica(self.clock, VllmV1(config), Rank(pool.cost, group), listener=listener)]


class Independent(Simulation):
    """Replicas that share experts, and do not wait for each other."""

    def _replicas(self, pool: Pool, listener: Any, fetch: Any) -> list[Replica]:
        return [build_replica(self.clock, pool.scenario, pool.ledger, pool.cost, listener)]


@given(scenarios(run={"resolution": "steps"}))
@settings(max_examples=150)
def test_one_rank_is_no_group(question: Scenario) -> None:
    """A group of one: every column of every record is that of the plain replica."""
    assert_same_records(OneRank(question).run(), simulate(question))


def traced(path: Path) -> str:
    """The override that serves a trace."""
    return f"workload={{trace: {{file: {path}, format: csv}}}}"


def assert_same_records(left: Result, right: Result) -> None:
    for columns, others in ((left.requests, right.requests), (left.steps, right.steps), (left.gaps, right.gaps)):
        for name in others:
            np.testing.assert_array_equal(columns[name], others[name], err_msg=name)


@pytest.mark.parametrize("asynchronous", ["true", "false"])
@pytest.mark.parametrize("level", ["datasheet", "kernels"])
def test_ranks_with_the_same_load_go_as_one_goes_alone(tmp_path: Path, asynchronous: str, level: str) -> None:
    """Every request comes twice, one for each rank."""
    rng = np.random.default_rng(3)
    arrivals, inputs, outputs = rng.exponential(0.05, 60).cumsum(), rng.integers(1, 3000, 60), rng.integers(1, 300, 60)
    trace = tmp_path / "twice.csv"
    rows = (f"{at:.6f},{prompt},{answer}" for at, prompt, answer in zip(arrivals, inputs, outputs, strict=True))
    trace.write_text("arrival,input_len,output_len\n" + "".join(f"{row}\n{row}\n" for row in rows))
    how = (traced(trace), f"engine.async_scheduling={asynchronous}", f"cost.level={level}")
    together = scenario(*PAIR, *how)
    both, alone = simulate(together), Independent(together).run()
    assert both.meta["dummy_steps"] == 0
    for name in ("scheduled", "first_token", "finish"):
        np.testing.assert_array_equal(both.requests[name], alone.requests[name], err_msg=name)
    np.testing.assert_array_equal(both.requests["finish"][::2], both.requests["finish"][1::2])


@pytest.mark.parametrize("asynchronous", ["true", "false"])
def test_steps_that_all_take_the_same_time_change_nothing_but_dummies(asynchronous: str) -> None:
    """Whoever began together goes on together, whatever each has to do; the rank that is done first runs for nobody."""
    question = scenario(*PAIR, "workload.arrivals={process: all_at_once}", TEN_MS,
                        "workload.input={distribution: uniform, min: 1, max: 5000}", "workload.num_requests=11",
                        "workload.output={distribution: uniform, min: 1, max: 300}", "engine.max_num_seqs=64",
                        f"engine.async_scheduling={asynchronous}", "run.resolution=steps")  # fmt: skip
    together, alone = simulate(question), Independent(question).run()
    assert_same_records(together, alone)
    counts = [np.count_nonzero(together.steps["replica"] == rank) for rank in (0, 1)]
    assert together.meta["dummy_steps"] == abs(counts[0] - counts[1]) > 0


def test_a_request_that_reaches_an_idle_rank_waits_for_the_step_of_the_others(tmp_path: Path) -> None:
    """Steps of 10 ms; the second request comes 3 ms into the first step of its peer."""
    trace = tmp_path / "two.csv"
    trace.write_text("arrival,input_len,output_len\n0,16,5\n0.003,16,5\n")
    question = scenario(*PAIR, traced(trace), "engine.async_scheduling=false",
                        TEN_MS)  # fmt: skip
    np.testing.assert_allclose(simulate(question).requests["scheduled"], [0.0, 0.01], atol=1e-12)
    np.testing.assert_allclose(Independent(question).run().requests["scheduled"], [0.0, 0.003], atol=1e-12)
    assert simulate(question).meta["dummy_steps"] == 2


@given(groups)
@settings(max_examples=100)
def test_everyone_is_served_once_and_blocks_come_back(question: Scenario) -> None:
    result = served_once(question)
    status = result.requests["status"]
    assert_causal(result, status == COMPLETED)
    if question.run.max_time is None:
        assert not np.any(status == UNFINISHED)


@given(groups)
@settings(max_examples=60)
def test_runs_equal_steps(question: Scenario) -> None:
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    assert_same_records(runs, steps)


@given(groups)
@settings(max_examples=100)
def test_steps_of_a_group_coincide_or_do_not_meet(question: Scenario) -> None:
    """Ranks decide together, and what they decided together ends together: no step of one is nested in steps of
    another. With synchronous scheduling none begins before that of a peer has ended.
    """
    steps = simulate(question).steps
    for group in range(question.cluster.replicas // 2):
        rows = steps["replica"] // 2 == group
        order = np.lexsort((steps["end"][rows], steps["start"][rows]))
        start, end = steps["start"][rows][order], steps["end"][rows][order]
        assert np.all(np.diff(end) >= 0)
        if not question.engine.async_scheduling:
            together = start[1:] == start[:-1]
            assert np.all(end[1:][together] == end[:-1][together])
            assert np.all(start[1:][~together] >= end[:-1][~together])


batches = st.tuples(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 4000)), max_size=3), st.integers(0, 300)
).filter(lambda batch: bool(batch[0] or batch[1]))


def costs(eager: bool, level: str) -> tuple[PeerCost, Callable[[Any], tuple[StepTime, int]]]:
    """Costs of the group, and time and tokens of a step of one rank."""
    cost = build_step_cost(scenario(*PAIR, f"engine.enforce_eager={eager}".lower(), f"cost.level={level}"))

    def of(batch: Any) -> tuple[StepTime, int]:
        chunks, decodes = batch
        tokens = decodes + sum(new for new, _ in chunks)
        return cost.step(chunks, decodes, 300 * decodes, decodes + len(chunks)), tokens

    return PeerCost(cost), of


COSTS = {(eager, level): costs(eager, level) for eager in (True, False) for level in ("datasheet", "kernels")}
ways = st.sampled_from(sorted(COSTS))
DUMMY = ([], 1)


@given(ways, batches, st.integers(1, 4))
@settings(max_examples=200)
def test_equal_steps_take_what_one_takes(way: tuple[bool, str], batch: Any, ranks: int) -> None:
    peers, of = COSTS[way]
    time, tokens = of(batch)
    assert peers.step([time] * ranks, [tokens] * ranks) == (time, [time.gpu] * ranks)


@given(ways, batches, batches)
@settings(max_examples=300)
def test_a_step_takes_no_less_than_beside_an_idle_rank(way: tuple[bool, str], batch: Any, other: Any) -> None:
    """And no more than if each rank had as many tokens as the one with most. No rank computes for longer than the step;
    the one that does most never waits. Measured times of experts are not smooth: 5 % there.
    """
    peers, of = COSTS[way]
    (one, few), (two, many) = of(batch), of(other)
    step, gpus = peers.step([one, two], [few, many])
    assert max(gpus) == step.gpu
    slack = 1.05 if way[1] == "kernels" else 1.001
    dummy, least = of(DUMMY)
    for time, tokens in ((one, few), (two, many)):
        if bool(time.padded) == bool(step.padded):
            beside_idle, _ = peers.step([time, dummy._replace(padded=min(time.padded, 1))], [tokens, least])
            assert step.gpu * slack >= beside_idle.gpu
            assert step.cpu >= time.cpu
    assert step.latency >= step.gpu


@pytest.mark.parametrize("asynchronous", ["true", "false"])
def test_unequal_ranks_wait_for_each_other(asynchronous: str) -> None:
    """The prompts of one rank slow down the answers of the other; the wait is told apart from host work."""
    mixed = ("workload.input={distribution: uniform, min: 100, max: 8000}", "workload.arrivals.rate=8",
             f"engine.async_scheduling={asynchronous}")  # fmt: skip
    question = scenario(*PAIR, *mixed)
    together, alone = (summarize(each) for each in (simulate(question), Independent(question).run()))
    assert together["mean_tpot_ms"] > alone["mean_tpot_ms"]
    assert together["step_time_breakdown"]["peers"] > 0
    assert "peers" not in alone["step_time_breakdown"]


@pytest.mark.parametrize(
    "override",
    [
        "cluster.pipeline_parallel=2",
        "engine.speculative={method: ngram, num_speculative_tokens: 3, acceptance: 0.5}",
        "engine.scheduler=prefill_first",
        "engine.preemption=swap",
        "run.resolution=kernels",
        "engine.host_sync=layer",
    ],
)
def test_what_is_not_modelled_together_is_refused(override: str) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ScenarioError, match=r"cluster\.expert_parallel\.data_parallel yet") as complaint:
        scenario(*PAIR, override)
    assert key in str(complaint.value)


def test_pools_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"cluster\.pools.*is not modelled with cluster\.expert_parallel"):
        scenario(*PAIR, "cluster.pools={prefill: {replicas: 1}, decode: {replicas: 1}}",
                 "cluster.kv_link={bandwidth: 50 GB/s}")  # fmt: skip
