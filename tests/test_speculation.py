"""Speculative decoding as a run sees it: how many tokens a step gives, to whom, and that nothing is lost."""

from math import ceil, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import Section, scenarios
from served import ASYNC, SYNC, constant, serve
from test_skipping import assert_same, both_ways

from simserve.report.explain import explanations
from simserve.report.question import question_facts
from simserve.report.series import series
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import Simulation, simulate
from simserve.spec.result import COMPLETED, REJECTED, UNFINISHED, Result
from simserve.spec.scenario import Scenario

OUTPUT = 400


def speculating(method: str = "eagle", count: int = 3, acceptance: float | str | list[float] = 0.7, **more: Any) -> str:
    """An override that turns speculation on."""
    if method == "draft_model":
        more["draft_model"] = "llama-3.2-1b"
    rest = "".join(f", {key}: {value}" for key, value in more.items())
    return f"engine.speculative={{method: {method}, num_speculative_tokens: {count}, acceptance: {acceptance}{rest}}}"


def answered(*overrides: str) -> Result:
    """A hundred requests with long answers, enough seats and blocks for all."""
    return simulate(constant(f"workload.output={OUTPUT}", "workload.arrivals.rate=50", *overrides))


def steps_after_first(result: Result) -> list[int]:
    """Per request, the steps that gave it a token after the first one did."""
    assert not result.gaps["request"].size
    steps: list[int] = (result.requests["last_step"] - result.requests["first_step"]).tolist()
    return steps


# -- how many tokens a step gives --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_drafts_that_are_always_right_come_whole(mode: str, count: int) -> None:
    result = answered(mode, speculating(count=count, acceptance=1.0))
    assert set(steps_after_first(result)) == {ceil((OUTPUT - 1) / (count + 1))}


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_drafts_that_are_never_right_leave_one_token_a_step(mode: str) -> None:
    """Where seats, blocks and budget are ample, every request fares as it does without speculation."""
    plain = answered(mode)
    result = answered(mode, speculating(acceptance=0.0))
    assert set(steps_after_first(result)) == {OUTPUT - 1}
    for name in ("scheduled", "first_token", "finish", "first_step", "last_step"):
        np.testing.assert_array_equal(result.requests[name], plain.requests[name], err_msg=name)


@pytest.mark.parametrize("acceptance", [0.3, 0.7, [0.8, 0.6, 0.5]])
def test_accepted_drafts_are_as_many_as_their_probabilities_say(acceptance: float | list[float]) -> None:
    """E[accepted] = p1 + p1 p2 + p1 p2 p3 (Leviathan et al., 2023, arXiv 2211.17192), within four standard errors; each
    position within four of its own.
    """
    reached = np.cumprod(np.broadcast_to(acceptance, 3))
    counts = summarize(answered(speculating(acceptance=acceptance)))
    drafts = counts["spec_decode_num_drafts"]
    assert drafts > 10_000
    lengths = np.arange(4)
    shares = -np.diff([1.0, *reached, 0.0])
    spread = sqrt(shares @ lengths**2 - (shares @ lengths) ** 2)
    assert counts["spec_decode_acceptance_length"] == pytest.approx(1 + reached.sum(), abs=4 * spread / sqrt(drafts))
    for rate, share in zip(counts["spec_decode_per_position_acceptance_rates"], reached, strict=True):
        assert rate == pytest.approx(share, abs=4 * sqrt(share * (1 - share) / drafts))


def test_a_look_up_that_finds_nothing_leaves_a_plain_decode() -> None:
    counts = summarize(answered(speculating("ngram", match_rate=0.25)))
    shares = counts["spec_decode_num_drafts"], counts["total_output_tokens"]
    never = summarize(answered(speculating("ngram", match_rate=0.0)))
    assert never["spec_decode_num_drafts"] == 0
    assert never["spec_decode_acceptance_rate"] is None
    assert never["spec_decode_acceptance_length"] is None
    tokens_a_step = 0.25 * (1 + 0.7 + 0.7**2 + 0.7**3) + 0.75
    assert shares[0] / shares[1] == pytest.approx(0.25 / tokens_a_step, rel=0.02)


def test_289_counters_add_up_to_the_tokens_given() -> None:
    """Every step of a request gives its accepted drafts and one token; only the last may be cut at the end."""
    result = answered(SYNC, speculating())
    counts = summarize(result)
    steps = sum(steps_after_first(result)) + len(result.requests["status"])
    given = counts["spec_decode_accepted_tokens"] + steps
    cut = given - int(result.requests["output_len"].sum())
    assert 0 <= cut <= 3 * len(result.requests["status"])
    per_position: Any = result.meta["spec_decode_accepted_tokens_per_position"]
    assert counts["spec_decode_accepted_tokens"] == sum(per_position)
    assert (
        counts["spec_decode_draft_tokens"] == 3 * counts["spec_decode_num_drafts"] == result.steps["draft_tokens"].sum()
    )


# -- chance ------------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    question = constant(speculating(), "workload.output=100")
    one, same = simulate(question), simulate(question)
    for name in one.requests:
        np.testing.assert_array_equal(one.requests[name], same.requests[name], err_msg=name)
    other = simulate(constant(speculating(), "workload.output=100", "seed=1"))
    assert steps_after_first(one) != steps_after_first(other)


def test_requests_accept_alike_whatever_happens_around_them() -> None:
    """Fewer seats, more replicas, another router, other drafters, other times: all that a step gives stays the same."""
    few = answered(speculating(), SYNC)
    for change in ("engine.max_num_seqs=7", "cluster.replicas=3", "cluster.router=random", "cost.constant_step=30 ms"):
        assert steps_after_first(answered(speculating(), SYNC, change)) == steps_after_first(few), change
    assert steps_after_first(answered(speculating("draft_model"), SYNC)) == steps_after_first(few)
    assert steps_after_first(answered(speculating("mtp"), ASYNC)) == steps_after_first(few)


# -- by hand -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_an_answer_worked_out_by_hand(mode: str) -> None:
    """Six tokens with two drafts a step, all right: one with the prompt at 10 ms, three at 20, the last two at 30."""
    result = serve([(0, 10, 6)], mode, speculating(count=2, acceptance=1.0))
    assert result.requests["first_token"].tolist() == [0.01]
    assert result.requests["finish"].tolist() == [0.03]
    tokens = [1, 3, 2]
    assert result.steps["output_tokens"].tolist()[:3] == tokens
    summary = summarize(result)
    assert summary["n_itl"] == 2
    assert summary["mean_itl_ms"] == pytest.approx(10)
    assert summary["mean_tpot_ms"] == pytest.approx(20 / 5)
    assert summary["max_output_tokens_per_s"] == 6
    assert (summary["spec_decode_num_drafts"], summary["spec_decode_accepted_tokens"]) == (2, 4)
    assert "Acceptance length:                       3.00" in benchmark_table(summary)


def test_what_was_decided_ahead_of_an_end_is_computed_for_nothing() -> None:
    """Asynchronous: the third step is decided before the second is known to have ended the answer."""
    ahead = serve([(0, 10, 4)], ASYNC, speculating(count=2, acceptance=1.0))
    waits = serve([(0, 10, 4)], SYNC, speculating(count=2, acceptance=1.0))
    assert ahead.requests["finish"].tolist() == waits.requests["finish"].tolist() == [0.02]
    assert ahead.steps["output_tokens"].tolist() == [1, 3, 0]
    assert waits.steps["output_tokens"].tolist() == [1, 3]


def test_the_page_of_a_run_tells_its_drafts() -> None:
    question = constant("workload.output=100", speculating("draft_model", acceptance=[0.5, 0.5, 0.25]))
    summary = summarize(simulate(question))
    assert (
        question_facts(question, summary)["Drafts"] == "3 a step by llama-3.2-1b, right with probability 0.5, 0.5, 0.25"
    )
    length = summary["spec_decode_acceptance_length"]
    told = [line for line in explanations(summary) if line.startswith("Drafts: ")]
    assert len(told) == 1
    assert told[0].endswith(f"gave a request {length:.2f} tokens.")


def test_a_run_without_speculation_says_nothing_of_it() -> None:
    result = answered()
    assert not any(line.startswith("Drafts") for line in explanations(summarize(result)))
    assert "Drafts" not in question_facts(result.scenario, summarize(result))
    assert not {"draft_tokens", "output_tokens"} & result.steps.keys()
    assert not any("spec_decode" in name for name in summarize(result))
    assert "Speculative" not in benchmark_table(summarize(result))


# -- nothing is lost ---------------------------------------------------------------------------------------------------


@st.composite
def speculations(draw: st.DrawFn) -> Section:
    """Any drafter with any acceptance."""
    method = draw(st.sampled_from(["ngram", "draft_model", "eagle", "mtp"]))
    section: Section = {"method": method, "num_speculative_tokens": draw(st.sampled_from([1, 2, 5]))}
    section["acceptance"] = draw(st.sampled_from([0.0, 0.5, 0.8, 1.0]))
    if method == "draft_model":
        section["draft_model"] = "llama-3.2-1b"
    return section | ({"match_rate": draw(st.sampled_from([0.5, 1.0]))} if method == "ngram" else {})


@st.composite
def speculative_scenarios(draw: st.DrawFn, /, **fixed_sections: Section) -> Scenario:
    """Full pools, shared text, chunks, priorities, users who wait: all of it with drafts."""
    section = draw(speculations())
    fixed: Section = {"speculative": section}
    if section["method"] == "ngram":
        fixed["async_scheduling"] = False
    return draw(scenarios(engine=fixed, **fixed_sections))


@given(speculative_scenarios(workload={"client": {"timeout": 0.2, "retries": 1}}))
@settings(max_examples=30)
def test_clients_may_leave_in_the_middle_of_a_step(question: Scenario) -> None:
    simulation = Simulation(question)
    result = simulation.run()
    whole = np.minimum(simulation.workload.output_len, question.engine.max_model_len - result.requests["input_len"])
    done = result.requests["status"] == COMPLETED
    np.testing.assert_array_equal(result.requests["output_len"][done], whole[done])
    assert summarize(result)["completed"] == done.sum()
    for replica in simulation.replicas:
        replica.scheduler.ledger.pool.check()
        if not replica.scheduler.has_requests:
            assert replica.scheduler.ledger.pool.num_free == replica.scheduler.ledger.pool.num_blocks


@given(speculative_scenarios())
@settings(max_examples=60)
def test_everyone_gets_the_whole_answer_once(question: Scenario) -> None:
    simulation = Simulation(question)
    result = simulation.run()
    requests = result.requests
    whole = np.minimum(simulation.workload.output_len, question.engine.max_model_len - requests["input_len"])
    done = requests["status"] == COMPLETED
    np.testing.assert_array_equal(requests["output_len"][done], whole[done])
    assert np.all(requests["output_len"] <= np.maximum(whole, 0))
    if question.run.max_time is None:
        assert set(requests["status"].tolist()) <= {COMPLETED, REJECTED}
    else:
        assert set(requests["status"].tolist()) <= {COMPLETED, REJECTED, UNFINISHED}
    assert result.steps["output_tokens"].sum() == requests["output_len"].sum()
    assert summarize(result)["completed"] == done.sum()
    for replica in simulation.replicas:
        pool = replica.scheduler.ledger.pool
        pool.check()
        if not replica.scheduler.has_requests:
            assert pool.num_free == pool.num_blocks


@given(speculative_scenarios())
@settings(max_examples=20)
def test_runs_are_steps(question: Scenario) -> None:
    assert_same(*both_ways(question))


def test_tokens_over_time_are_all_tokens() -> None:
    result = answered(speculating())
    drawn = series(result, 50)
    assert drawn is not None
    assert (drawn.output_rate * np.diff(drawn.edges)).sum() == pytest.approx(result.requests["output_len"].sum())
    peak = summarize(result)["max_output_tokens_per_s"]
    assert peak >= summarize(result)["output_throughput"]
