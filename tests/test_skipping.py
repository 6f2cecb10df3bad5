"""Runs of equal steps taken in one sleep leave the very records of stepping: `runs` == `steps`, with `==`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from random_scenarios import scenarios
from scenario_text import scenario
from single_steps import first_steps, last_steps, single_steps, ticks

from simserve.engine.equal_steps import Progression
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.report.summary import summarize
from simserve.simulation import simulate
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario

EFFORT = {"events", "scheduler_calls", "skipped_steps"}
"""What a run says of its own work; all else it says of the engine."""


def both_ways(question: Scenario) -> tuple[Result, Result]:
    """Its records with runs of equal steps, and step by step."""
    return simulate(question), simulate(question.with_overrides(["run.resolution=steps"]))


def assert_same(runs: Result, steps: Result) -> None:
    """Every column of requests and gaps, the step logs spelled out, every counter and the whole summary."""
    for name in steps.requests:
        np.testing.assert_array_equal(runs.requests[name], steps.requests[name], err_msg=name)
    for name in steps.gaps:
        np.testing.assert_array_equal(runs.gaps[name], steps.gaps[name], err_msg=name)
    assert_same_steps(runs, steps)
    assert_same_summary(runs, steps)


def assert_same_steps(runs: Result, steps: Result) -> None:
    """Columns that hold for each step are compared for each; the others where rows begin or end."""
    assert np.all(steps.steps["steps"] == 1)
    left, right = single_steps(runs), single_steps(steps)
    for name in right:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)
    first, last = first_steps(runs), last_steps(runs)
    for name in ("start", "waiting"):
        np.testing.assert_array_equal(runs.steps[name], steps.steps[name][first], err_msg=name)
    for name in ("end", "free_blocks"):
        np.testing.assert_array_equal(runs.steps[name], steps.steps[name][last], err_msg=name)
    for name in ("gpu_time", "cpu_time"):
        spent, stepwise = (np.cumsum(ticks(result.steps[name])) for result in (runs, steps))
        np.testing.assert_array_equal(spent, stepwise[last], err_msg=name)


def assert_same_summary(runs: Result, steps: Result) -> None:
    left, right = summarize(runs), summarize(steps)
    assert left.keys() == right.keys()
    for name in right.keys() - EFFORT - {"step_time_breakdown"}:
        assert left[name] == right[name], name
    assert left["step_time_breakdown"] == pytest.approx(right["step_time_breakdown"], rel=1e-9, abs=1e-9)


@given(scenarios())
@settings(max_examples=100)
def test_runs_equal_steps(question: Scenario) -> None:
    assert_same(*both_ways(question))


@given(scenarios())
@settings(max_examples=40)
def test_runs_equal_steps_where_the_longest_decode_counts(question: Scenario) -> None:
    """FlashAttention 2: the cost of a batch depends on its longest sequence."""
    question = question.with_overrides(["cluster.gpu=rtx-pro-6000-96gb"])
    assert_same(*both_ways(question))


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=10_000, derandomize=False)
def test_runs_equal_steps_in_ten_thousand_scenarios(question: Scenario) -> None:
    assert_same(*both_ways(question))


LONG = (
    "workload.output={distribution: uniform, min: 20, max: 400}",
    "workload.num_requests=40",
    "engine.max_model_len=1024",
    "engine.num_gpu_blocks=200",
    "workload.input=100",
)


@pytest.mark.parametrize("rate", [0.5, 4, 50])
@pytest.mark.parametrize("mode", ["true", "false"])
def test_long_answers_are_skipped_over(rate: float, mode: str) -> None:
    """At low load nearly every step is one of a run; at high load the same records still come out."""
    question = scenario(*LONG, f"workload.arrivals.rate={rate}", f"engine.async_scheduling={mode}")
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    assert steps.meta["skipped_steps"] == 0
    assert runs.meta["total_steps"] == len(steps.steps["steps"])
    skipped, total = (int(str(runs.meta[name])) for name in ("skipped_steps", "total_steps"))
    assert skipped > (0.9 if rate < 1 else 0.2) * total
    assert len(runs.steps["steps"]) < total - skipped // 2
    assert int(str(runs.meta["scheduler_calls"])) < int(str(steps.meta["scheduler_calls"])) - skipped // 2


@pytest.mark.parametrize("mode", ["true", "false"])
def test_who_comes_during_a_run_waits_in_the_rows_that_begin_later(mode: str) -> None:
    """Arrivals that find every seat taken end no run; the row of its last step counts those that came before it."""
    question = scenario(
        "workload.num_requests=60", "workload.arrivals.rate=5", "workload.output=40", "workload.input=16",
        "engine.max_num_seqs=1", "cluster.replicas=2", "cluster.router=random", f"engine.async_scheduling={mode}",
    )  # fmt: skip
    runs, steps = both_ways(question)
    assert steps.steps["waiting"].max() > 2
    assert_same(runs, steps)


def test_a_batch_that_decodes_together_is_one_row() -> None:
    question = scenario("workload.arrivals={process: all_at_once}", "workload.num_requests=4", "workload.output=1000")
    result = simulate(question)
    assert result.meta["total_steps"] == 1000
    assert len(result.steps["steps"]) < 10
    assert int(str(result.meta["scheduler_calls"])) < 20


# These comparisons can fail


def overshoot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes one step too far."""
    ahead = VllmV1.steps_ahead
    monkeypatch.setattr(VllmV1, "steps_ahead", lambda *args: (n := ahead(*args)) + (n > 0))


def wrong_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps between the ends of equal steps grow by a tick too much."""
    at: Callable[[Any, int], int] = Progression.at
    monkeypatch.setattr(Progression, "at", lambda self, index: at(self, index) + index * (index - 1) // 2)


def blind_to_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are taken for one step fewer than a run has."""
    repeat = VllmV1.repeat

    def one_fewer(self: VllmV1, num_steps: int) -> Any:
        decoding = self.books.decoding
        taken = decoding.blocks_needed(num_steps) - decoding.blocks_needed(num_steps - 1)
        plan = repeat(self, num_steps)
        self.ledger.pool.num_free += taken
        self.ledger.pool.num_unhashed += taken
        return plan

    monkeypatch.setattr(VllmV1, "repeat", one_fewer)


@pytest.mark.plain_source
@pytest.mark.parametrize("fault", [overshoot, wrong_growth, blind_to_blocks])
@pytest.mark.parametrize("mode", ["true", "false"])
def test_a_fault_in_skipping_is_seen(
    fault: Callable[[pytest.MonkeyPatch], None], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = scenario(*LONG, f"engine.async_scheduling={mode}")
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        assert_same(*both_ways(question))
