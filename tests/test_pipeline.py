"""Pipeline stages: which layers, how much memory, and when a micro-batch leaves which of them."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario
from served import served_once

from simserve.cluster.pool import Pool
from simserve.cost import build_step_cost, memory_ledger
from simserve.cost.pipeline import PipelineCost
from simserve.cost.stages import layers_of_stages
from simserve.engine.pace.stages import MicroBatch, Stages
from simserve.engine.replica import Replica
from simserve.engine.request_wise import RequestWise
from simserve.simulation import Simulation, scheduler_config, simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, Result
from simserve.spec.scenario import Scenario

SYNCHRONOUS: dict[str, Any] = {"async_scheduling": False}


@pytest.mark.parametrize(
    ("layers", "sizes"), [(32, [16, 16]), (80, [20] * 4), (61, [15, 15, 16, 15]), (30, [7, 8, 8, 7]), (3, [1, 1, 1])]
)
def test_layers_are_cut_as_vllm_cuts_them(layers: int, sizes: list[int]) -> None:
    parts = layers_of_stages(layers, len(sizes))
    assert [len(part) for part in parts] == sizes
    assert [layer for part in parts for layer in part] == list(range(layers))


def test_stages_share_the_weights_and_multiply_the_cache() -> None:
    """Twice the stages hold half of the layers each, so that a block takes half the bytes; the larger of the two
    stages, that with the head, decides how many blocks there are.
    """
    one = memory_ledger(scenario())
    two = memory_ledger(scenario("cluster.pipeline_parallel=2", "engine.async_scheduling=false"))
    head = 128256 * 4096 * 2
    assert two.block_bytes * 2 == one.block_bytes
    assert two.weights == pytest.approx(one.weights / 2, rel=0.01)
    assert one.weights - 2 * two.weights < head / 10
    assert two.num_gpu_blocks > 2.2 * one.num_gpu_blocks


def test_weights_stated_by_the_user_are_shared_by_parameters() -> None:
    stated = "model={config: llama-3.1-8b, weight_bytes: 16 GB}"
    one, two = (memory_ledger(scenario(stated, f"cluster.pipeline_parallel={stages}")).weights for stages in (1, 2))
    assert two == pytest.approx(one / 2, rel=0.01)


class OneStage(Simulation):
    """A fleet whose replicas are pipelines of one stage."""

    def _replicas(self, pool: Pool, listener: Any, fetch: Any) -> list[Replica]:
        scheduler = RequestWise(scheduler_config(pool.scenario, pool.ledger.num_gpu_blocks))
        return [Replica(self.clock, scheduler, Stages(PipelineCost([pool.cost])), listener=listener)]


@pytest.mark.plain_source
@given(scenarios(engine=SYNCHRONOUS | {"scheduling_policy": "fcfs"}, run={"resolution": "steps"}))
@settings(max_examples=100)
def test_one_stage_is_no_pipeline(question: Scenario) -> None:
    """With a single stage every column of every record is that of the plain replica."""
    staged, plain = OneStage(question).run(), simulate(question)
    for name in plain.requests:
        np.testing.assert_array_equal(staged.requests[name], plain.requests[name], err_msg=name)
    for name in plain.steps:
        np.testing.assert_array_equal(staged.steps[name], plain.steps[name], err_msg=name)


pipelines = st.sampled_from([2, 3, 4]).flatmap(
    lambda stages: scenarios(engine=SYNCHRONOUS, cluster={"pipeline_parallel": stages})
)


@given(pipelines)
@settings(max_examples=100)
def test_everyone_is_served_once_and_blocks_come_back(question: Scenario) -> None:
    result = served_once(question)
    assert_causal(result, result.requests["status"] == COMPLETED)


def assert_causal(result: Result, done: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """Arrival, admission, first token and last follow each other, and so do the micro-batches of a replica."""
    requests, steps = result.requests, result.steps
    order = [requests[name][done] for name in ("arrival", "engine_arrival", "scheduled", "first_token", "finish")]
    assert all(np.all(earlier <= later) for earlier, later in pairwise(order))
    for replica in np.unique(steps["replica"]):
        rows = steps["replica"] == replica
        assert np.all(np.diff(steps["step"][rows]) == 1)
        assert np.all(np.diff(steps["start"][rows]) >= 0)
        assert np.all(np.diff(steps["end"][rows]) >= 0)


@given(pipelines)
@settings(max_examples=30)
def test_the_same_seed_gives_the_same_records_at_any_resolution(question: Scenario) -> None:
    left, right = simulate(question), simulate(question.with_overrides(["run.resolution=steps"]))
    for name in left.requests:
        np.testing.assert_array_equal(left.requests[name], right.requests[name], err_msg=name)


@pytest.mark.plain_source
@given(pipelines)
@settings(max_examples=50)
def test_micro_batches_pass_the_stages_as_a_tandem_queue(question: Scenario) -> None:
    """E_{s,k} = max(max(E_{s,k-1}, E_{s-1,k}) + gpu, decided + latency): stages serve in order, one at a time."""
    batches: list[MicroBatch] = []

    class Watched(Stages):
        def _know_tokens(self, batch: MicroBatch) -> None:
            batches.append(batch)
            super()._know_tokens(batch)

    class Watching(Simulation):
        def _replicas(self, pool: Pool, listener: Any, fetch: Any) -> list[Replica]:
            config = scheduler_config(pool.scenario, pool.ledger.num_gpu_blocks)
            assert isinstance(pool.cost, PipelineCost)
            return [Replica(self.clock, RequestWise(config), Watched(pool.cost), listener=listener)]

    Watching(question.with_overrides(["cluster.replicas=1", "cluster.router=round_robin"])).run()
    free = [0] * question.cluster.pipeline_parallel
    for batch in batches:
        at = batch.decided
        for stage, (gpu, latency) in enumerate(batch.times):
            free[stage] = at = max(max(at, free[stage]) + gpu, batch.decided + latency)
        assert batch.ends == free
        assert len(batch.ends) == len(batch.times)


@given(st.integers(1, 64), st.integers(1, 100_000), st.sampled_from([1, 2, 3, 7]))
@settings(max_examples=50)
def test_a_step_of_decodes_is_any_step(num_decodes: int, context: int, stages: int) -> None:
    """In closed form over its context, and as a step of nothing else."""
    cost = build_step_cost(scenario("model=llama-3.2-1b", f"cluster.pipeline_parallel={stages}"))
    assert cost.decode(num_decodes).at(context) == cost.step((), num_decodes, context, num_decodes)


def test_one_user_gains_nothing_from_stages() -> None:
    """One request at a time is in one stage at a time: a step takes as long as on a single GPU, plus the hops."""
    one_user = ("workload.arrivals={process: closed_loop, users: 1}", "workload.num_requests=5", "cost.level=datasheet")
    plain = simulate(scenario(*one_user, "engine.async_scheduling=false"))
    staged = simulate(scenario(*one_user, "cluster.pipeline_parallel=4"))
    slower = staged.requests["finish"][-1] / plain.requests["finish"][-1]
    assert 1.0 < slower < 1.05


def test_a_batch_that_cannot_be_split_leaves_bubbles() -> None:
    """Requests that came together stay together: of two stages one is always idle."""
    together = scenario(
        "workload.arrivals={process: all_at_once}",
        "workload.num_requests=64",
        "workload.input=16",
        "cluster.pipeline_parallel=2",
    )
    steps = simulate(together).steps
    busy = steps["gpu_time"].sum() / (steps["end"][-1] - steps["start"][0])
    assert busy < 0.5


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["engine.async_scheduling=true"], "engine.async_scheduling: is not modelled with pipeline stages yet"),
        (["run.resolution=kernels"], "run.resolution: kernels is not modelled with pipeline stages yet"),
        (["cluster.tensor_parallel=8"], "2 stages of 8 GPUs span more than one node"),
        (["model=gpt-oss-120b"], "window layers of gpt-oss-120b on different stages"),
    ],
)
def test_what_is_not_modelled_is_refused(overrides: list[str], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        scenario("cluster.pipeline_parallel=2", *overrides)


DRAFTS = "engine.speculative={method: eagle, num_speculative_tokens: 2, acceptance: 0.7}"


def test_drafts_are_proposed_on_the_last_stage() -> None:
    """Beside the head, which the last stage has in any case, it does the drafter's passes."""
    chunks = [(3, 500)] * 4
    plain = build_step_cost(scenario("cluster.pipeline_parallel=2"))
    drafting = build_step_cost(scenario("cluster.pipeline_parallel=2", DRAFTS))
    assert isinstance(plain, PipelineCost)
    assert isinstance(drafting, PipelineCost)
    _, _, (_, last) = plain.stage_ticks(chunks, 0, 0, 4)
    _, _, (first, last_with_drafts) = drafting.stage_ticks(chunks, 4, 0, 4)
    assert last_with_drafts.gpu > last.gpu + first.gpu / 16  # two passes over one layer of sixteen


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("method", ["ngram", "eagle", "mtp"])
def test_drafts_and_stages_give_whole_answers(stages: int, method: str) -> None:
    """Tight memory, small chunks: every answer is whole, and blocks come back."""
    question = scenario(
        f"cluster.pipeline_parallel={stages}", DRAFTS.replace("eagle", method), "engine.num_gpu_blocks=140",
        "engine.max_model_len=2048", "engine.max_num_batched_tokens=256", "workload.arrivals.rate=40",
    )  # fmt: skip
    simulation = Simulation(question)
    result = simulation.run()
    assert result.meta["num_preemptions"]
    np.testing.assert_array_equal(result.requests["output_len"], simulation.workload.output_len)
    assert (result.requests["status"] == COMPLETED).all()
    assert result.steps["output_tokens"].sum() == result.requests["output_len"].sum()
    for replica in simulation.replicas:
        assert replica.scheduler.ledger.pool.num_free == replica.scheduler.ledger.pool.num_blocks


@pytest.mark.parametrize("acceptance", [0, 1])
def test_accepted_drafts_spare_steps_in_stages_too(acceptance: int) -> None:
    """One user: ceil((n - 1) / (k + 1)) steps after the first, or n - 1."""
    drafts = DRAFTS.replace("0.7", str(acceptance))
    one = ("workload.arrivals={process: closed_loop, users: 1}", "workload.num_requests=3")
    result = simulate(scenario("cluster.pipeline_parallel=2", drafts, *one))
    steps = result.requests["last_step"] - result.requests["first_step"]
    assert (steps == (127 if acceptance == 0 else 43)).all()
