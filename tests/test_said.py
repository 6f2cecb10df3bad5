"""What the engine does to a workload is said: answers cut, prompts refused, a warm-up that leaves nothing to count."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_text import scenario
from typer.testing import CliRunner

from simserve.cli import app
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.workload.workload import build_workload

FEW = ("workload.num_requests=4", "engine.max_model_len=1000")


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.tuples(st.integers(1, 1300), st.integers(1, 1300)), min_size=1, max_size=6))
def test_every_answer_that_is_cut_and_every_prompt_that_is_refused_is_counted(lengths: list[tuple[int, int]]) -> None:
    inputs, outputs = (f"{{distribution: empirical, values: {list(each)}}}" for each in zip(*lengths, strict=True))
    asked = scenario(*FEW, f"workload.input={inputs}", f"workload.output={outputs}")
    workload, result = build_workload(asked), simulate(asked)
    summary = summarize(result)
    room = 1000 - workload.input_len
    assert summary["prompts_too_long"] == int((room <= 0).sum())
    assert summary["answers_cut"] == int(((room > 0) & (workload.output_len > room)).sum())
    np.testing.assert_array_equal(result.requests["wanted_output_len"], workload.output_len)


def test_cut_answers_stand_in_summary_and_table() -> None:
    """faults.md: requests 500+9,000 and 8,000+500 at 8,192 gave 7,692 and 192 tokens, "completed"."""
    lengths = ("workload.input=500", "workload.output=9000", "workload.num_requests=2", "engine.max_model_len=8192")
    summary = summarize(simulate(scenario(*lengths)))
    assert summary["answers_cut"] == summary["completed"] == 2
    assert summary["total_output_tokens"] == 2 * 7692
    words = " ".join(benchmark_table(summary).split())
    assert "Note: 2 answers were cut: prompt and answer would be longer than engine.max_model_len = 8192" in words


def test_nothing_succeeded_has_a_reason_and_a_code_of_its_own(tmp_path: Path) -> None:
    """faults.md: max_model_len 100 failed 50 of 50 without a reason, and exited with 0."""
    file = tmp_path / "s.yaml"
    file.write_text(scenario(*FEW, "workload.input=500", "engine.max_model_len=100").to_yaml())
    done = CliRunner().invoke(app, ["run", str(file)])
    assert done.exit_code == 4
    words = " ".join(done.stdout.split())
    assert "4 prompts were rejected: no room for an answer within engine.max_model_len = 100" in words
    assert "no request succeeded" in done.output


def test_a_warm_up_longer_than_the_run_is_an_error() -> None:
    result = simulate(scenario(*FEW, "run.warmup=1000 s"))
    with pytest.raises(ScenarioError, match=r"run.warmup: 1000 s leaves no request that counts: the last of 4 came at"):
        summarize(result)


@pytest.mark.parametrize(
    ("lengths", "problem"),
    [
        ("{distribution: lognormal, mean: 5000, cv: 1, max: 100}", "mean 5000 cannot be the mean .* max 100"),
        ("{distribution: normal, mean: 5, stddev: 1, min: 10}", "mean 5 cannot be the mean .* min 10"),
    ],
)
def test_a_mean_outside_its_bounds_is_refused(lengths: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        scenario(f"workload.input={lengths}")


LOOP = ("workload.arrivals={process: closed_loop, users: 16}", "workload.input=800", "workload.output=50")


def test_users_of_a_loop_of_fixed_lengths_are_jittered_and_that_they_come_in_waves_is_said() -> None:
    """faults.md: TTFT of 1,735 ms whatever the output, since all prompts come at once, round after round."""
    rounds = ("workload.num_requests=480", "engine.max_model_len=2048")
    together, apart = (simulate(scenario(*LOOP, *rounds, *jitter)) for jitter in (("workload.jitter=0",), ()))
    arrivals = [len(np.unique(each.requests["arrival"][240:])) for each in (together, apart)]
    assert arrivals[0] < 60
    assert arrivals[1] > 200
    for each in (together, apart):
        assert any("16 users with prompts and answers of one length" in note for note in summarize(each)["notes"])
    varied = simulate(scenario(*LOOP, "workload.input={distribution: uniform, min: 100, max: 900}"))
    assert not any("of one length" in note for note in summarize(varied)["notes"])


@pytest.mark.parametrize(
    "unlike",
    [
        "workload.input={distribution: uniform, min: 700, max: 900}",
        "workload.arrivals.think_time=1 s",
        "workload.arrivals={process: poisson, rate: 3}",
    ],
)
def test_whoever_is_parted_already_is_not_jittered(unlike: str) -> None:
    asked = scenario(*LOOP, unlike)
    assert asked.workload.mean_jitter == 0
    assert scenario(*LOOP).workload.mean_jitter == 0.01


def test_a_jitter_that_would_be_ignored_is_refused() -> None:
    with pytest.raises(ScenarioError, match="jitter would be ignored"):
        scenario("workload.jitter=5 ms")


@pytest.mark.parametrize(
    ("key", "what"), [("n=4", "several answers to one prompt"), ("response_format=json", "structured output")]
)
def test_requests_that_are_not_modelled_are_refused_by_name(key: str, what: str) -> None:
    with pytest.raises(ScenarioError, match=rf"workload.{key.partition('=')[0]}: {what}.* is not modelled yet"):
        scenario(f"workload.{key}")
