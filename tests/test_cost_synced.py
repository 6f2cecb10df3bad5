"""A forward pass that waits for the GPU once a layer: the same to the tick at every resolution, and never faster."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.cost.build import modelled_step_cost
from simserve.cost.modelled import ModelledStepCost
from simserve.engine.gpu.timeline import step_timeline
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds

SCENARIO = """
model: {model}
workload:
  arrivals: {{process: poisson, rate: 20}}
  input: {{distribution: uniform, min: 10, max: 3000}}
  output: {{distribution: uniform, min: 1, max: 60}}
  num_requests: 40
cluster: {{gpu: h100-sxm-80gb, tensor_parallel: {ranks}}}
engine: {{max_model_len: 8192, enforce_eager: true, async_scheduling: false, host_sync: layer}}
"""
DEPLOYMENTS = [("llama-3.1-8b", 1), ("qwen3-0.6b", 1), ("gpt-oss-20b", 1), ("llama-3.1-70b", 8)]
"""One bound by kernels, one by launches, one with two kinds of attention, one with collectives."""

chunk = st.tuples(st.integers(1, 2000), st.integers(0, 4000))
batches = st.tuples(st.lists(chunk, max_size=3), st.integers(0, 300), st.integers(1, 4000)).filter(
    lambda batch: bool(batch[0]) or batch[1] > 0
)


def scenario(model: str = "llama-3.1-8b", ranks: int = 1, *overrides: str) -> Scenario:
    return parse_scenario(SCENARIO.format(model=model, ranks=ranks), overrides)


COSTS = {(model, ranks): modelled_step_cost(scenario(model, ranks)) for model, ranks in DEPLOYMENTS}
AHEAD = {
    (model, ranks): modelled_step_cost(scenario(model, ranks, "engine.host_sync=none")) for model, ranks in DEPLOYMENTS
}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@given(batch=batches)
def test_waiting_costs_time_and_no_work(
    deployment: tuple[str, int], batch: tuple[list[tuple[int, int]], int, int]
) -> None:
    chunks, decodes, context = batch
    step = chunks, decodes, decodes * context, decodes + len(chunks)
    waiting, ahead = COSTS[deployment].step(*step), AHEAD[deployment].step(*step)
    assert waiting.latency > ahead.latency
    assert (waiting.cpu, waiting.gpu, waiting.padded) == (ahead.cpu, ahead.gpu, 0)
    host = COSTS[deployment].host.before + COSTS[deployment].host.per_sequence * step[3]
    assert waiting.latency <= host + ahead.gpu + sum(launch.cpu for launch in COSTS[deployment].launches(*step))


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@settings(max_examples=20)
@given(batch=batches)
def test_a_step_spelled_out_ends_on_the_same_tick(
    deployment: tuple[str, int], batch: tuple[list[tuple[int, int]], int, int]
) -> None:
    chunks, decodes, context = batch
    step = chunks, decodes, decodes * context, decodes + len(chunks)
    timeline = step_timeline(scenario(*deployment), *step)
    assert timeline.time == to_seconds(COSTS[deployment].step(*step).latency)


def test_launch_bound_layers_take_their_launches_and_their_last_kernel() -> None:
    """Where every launch takes longer than the kernel before it, a layer ends when its last kernel does."""
    cost = COSTS["qwen3-0.6b", 1]
    launches = cost.launches([], 1, 100, 1)
    assert sum(launch.sync for launch in launches) == 28
    assert all(kernel.ticks < launch.cpu for launch in launches[:-2] for kernel in launch.kernels)
    waits = sum(launch.kernels[-1].ticks for launch in launches if launch.sync)
    end = cost.host.before + cost.host.per_sequence + sum(launch.cpu for launch in launches) + waits
    head = [launch.kernels[0].ticks for launch in launches[-2:]]
    lm_head_waits = max(0, head[0] - launches[-1].cpu)
    assert cost.decode(1).at(100).latency == end + lm_head_waits + head[1]


@pytest.mark.parametrize(("model", "ranks"), DEPLOYMENTS)
def test_every_resolution_records_the_same(model: str, ranks: int) -> None:
    runs, steps, kernels = (
        simulate(scenario(model, ranks, f"run.resolution={each}")).requests for each in ("runs", "steps", "kernels")
    )
    for column in runs:
        assert np.array_equal(runs[column], steps[column], equal_nan=True), column
        assert np.array_equal(runs[column], kernels[column], equal_nan=True), column


def test_without_waits_nothing_is_another_cost() -> None:
    assert type(AHEAD["llama-3.1-8b", 1]) is ModelledStepCost


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("engine.enforce_eager=false", "cannot be captured in a CUDA graph: set engine.enforce_eager: true"),
        ("engine.async_scheduling=true", "set engine.async_scheduling: false"),
        ("cluster.pipeline_parallel=2", "set cluster.pipeline_parallel: 1"),
        ("cost.constant_step=10 ms", "would be ignored"),
        (
            "engine.speculative={method: ngram, num_speculative_tokens: 3, acceptance: 0.5}",
            "leave engine.speculative out",
        ),
    ],
)
def test_what_cannot_wait_is_refused(override: str, remedy: str) -> None:
    with pytest.raises(ScenarioError, match=f"engine.host_sync: .*{remedy}"):
        scenario("llama-3.1-8b", 1, override)


def test_a_compiled_pass_without_graphs_may_wait() -> None:
    compiled = scenario("llama-3.1-8b", 1, "engine.enforce_eager=false", "engine.cuda_graph.mode=none")
    eager = COSTS["llama-3.1-8b", 1].decode(1).at(100).latency
    assert modelled_step_cost(compiled).decode(1).at(100).latency < eager
