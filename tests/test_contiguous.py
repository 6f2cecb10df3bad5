"""Contiguous KV: a place for the longest request for each, and how much of it stays empty."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario
from test_skipping import assert_same, both_ways

from simserve.report.kv_waste import kv_waste
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, REJECTED
from simserve.spec.scenario import Scenario

CONTIGUOUS = {"engine": {"kv_allocation": "contiguous", "enable_prefix_caching": None}}


@given(scenarios(**CONTIGUOUS))
@settings(max_examples=60)
def test_every_running_request_holds_one_place(question: Scenario) -> None:
    """As many places as the pool has room for, one for each who runs, and nobody ever loses it."""
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    engine = question.engine
    assert engine.num_gpu_blocks is not None
    places = (engine.num_gpu_blocks - 1) * engine.block_size // engine.max_model_len
    assert runs.meta["num_gpu_blocks"] == places + 1
    assert np.all(runs.steps["running"] + runs.steps["free_blocks"] == places)
    assert runs.meta["num_preemptions"] == 0
    if question.run.max_time is None:
        assert np.all(np.isin(runs.requests["status"], (COMPLETED, REJECTED)))


def test_a_place_is_one_block_as_long_as_the_longest_request() -> None:
    """Where a block may be that long, both ways to say it are one: the same records."""
    pool = ("engine.max_model_len=256", "workload.input=100", "workload.output=100", "workload.arrivals.rate=200")
    places = simulate(scenario(*pool, "engine.kv_allocation=contiguous", "engine.num_gpu_blocks=161"))
    blocks = simulate(
        scenario(*pool, "engine.block_size=256", "engine.num_gpu_blocks=11", "engine.enable_prefix_caching=false")
    )
    assert places.steps["running"].max() == 10
    for name in blocks.requests:
        np.testing.assert_array_equal(places.requests[name], blocks.requests[name])
    for name in blocks.steps:
        np.testing.assert_array_equal(places.steps[name], blocks.steps[name])


def test_a_pool_that_does_not_divide_leaves_a_rest() -> None:
    """100 blocks of 16 tokens hold six places of 256 tokens, and 64 tokens that nobody can use."""
    question = scenario("engine.max_model_len=256", "engine.kv_allocation=contiguous", "engine.num_gpu_blocks=101")
    assert (
        simulate(question.with_overrides(["workload.input=10", "workload.num_requests=3"])).meta["num_gpu_blocks"] == 7
    )


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=8), st.integers(1, 70))
def test_waste_counts_every_token_of_every_request(lengths: list[tuple[int, int]], size: int) -> None:
    reserved = [-(-(prompt + i) // size) * size for prompt, answer in lengths for i in range(answer)]
    filled = [prompt + i for prompt, answer in lengths for i in range(answer)]
    columns = dict(zip(("input_len", "output_len"), np.array(lengths).T, strict=True))
    everyone = np.ones(len(lengths), np.bool_)
    assert kv_waste(columns, everyone, size) == 1 - sum(filled) / sum(reserved)
    assert kv_waste(columns, ~everyone, size) is None


def test_summary_and_table_say_what_is_reserved_and_empty() -> None:
    question = scenario(
        "engine.kv_allocation=contiguous", "engine.max_model_len=1000", "workload.input=400", "workload.output=201"
    )
    found = summarize(simulate(question))
    assert found["kv_cache_waste"] == pytest.approx(0.5)
    assert found["extensions"] == ["contiguous KV allocation"]
    text = benchmark_table(found)
    assert "Reserved KV cache left empty (%):        50.00" in text
    assert "not in vLLM" in text
    paged = summarize(simulate(scenario("workload.input=400", "workload.output=201")))
    assert 0 < paged["kv_cache_waste"] < 0.02
    assert paged["extensions"] == []
    assert "left empty" not in benchmark_table(paged)


def test_prefix_caching_is_off_and_cannot_be_asked_for() -> None:
    assert not scenario("engine.kv_allocation=contiguous").engine.enable_prefix_caching
    with pytest.raises(ScenarioError, match=r"engine\.enable_prefix_caching: contiguous KV shares nothing"):
        scenario("engine.kv_allocation=contiguous", "engine.enable_prefix_caching=true")
