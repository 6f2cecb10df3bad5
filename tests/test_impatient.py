"""Clients who give up and send again, and a door that refuses: every attempt ends once, and nothing of it stays behind.

Laws first, on random questions; then what each key means, in milliseconds that can be followed by hand.
"""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit import Audit, audited
from hypothesis import given, settings
from hypothesis import strategies as st
from impatient_scenarios import impatient_scenarios
from random_scenarios import scenarios
from scenario_text import TEXT, scenario
from single_steps import ticks
from test_skipping import assert_same, both_ways

from simserve.cluster.admission import TokenBucket
from simserve.report.explain import explanations
from simserve.report.run_folder import read_run
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.report.write_run import write_run
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.spec.result import (
    ATTEMPT_COLUMNS,
    CANCELLED,
    COMPLETED,
    REJECTED,
    STATUSES,
    TIMED_OUT,
    UNFINISHED,
    Result,
)
from simserve.spec.scenario import Scenario

DOOR = "{front_end_per_request: 2 ms, front_end_per_token: 0, delivery: 1 ms}"
STEP = f"cost={{constant_step: 10 ms, host: {DOOR}}}"
"""A request reaches the engine 2 ms after it is sent, a step takes 10 ms, and a token reaches its client 1 ms later."""
ALL_AT_ONCE = "workload.arrivals={process: all_at_once}"


def milliseconds(values: Any) -> list[float | None]:
    return [None if np.isnan(value) else round(value * 1e3, 6) for value in values]


def names(statuses: Any) -> list[str]:
    return [STATUSES[status] for status in statuses]


# Laws


@given(impatient_scenarios())
@settings(max_examples=100)
def test_runs_equal_steps_whoever_gives_up(question: Scenario) -> None:
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    assert_same_attempts(runs, steps)


@pytest.mark.slow
@given(impatient_scenarios())
@settings(max_examples=5_000, derandomize=False)
def test_runs_equal_steps_whoever_gives_up_in_thousands_of_scenarios(question: Scenario) -> None:
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    assert_same_attempts(runs, steps)


def assert_same_attempts(left: Result, right: Result) -> None:
    assert list(left.attempts) == list(right.attempts) == list(ATTEMPT_COLUMNS)
    for name in ATTEMPT_COLUMNS:
        np.testing.assert_array_equal(left.attempts[name], right.attempts[name], err_msg=name)


@given(impatient_scenarios(cluster={"replicas": 1}, run={"resolution": "kernels"}))
@settings(max_examples=40)
def test_kernels_equal_steps_whoever_gives_up(question: Scenario) -> None:
    kernels, steps = simulate(question), simulate(question.with_overrides(["run.resolution=steps"]))
    for name in steps.requests:
        np.testing.assert_array_equal(kernels.requests[name], steps.requests[name], err_msg=name)
    assert_same_attempts(kernels, steps)


@given(impatient_scenarios())
@settings(max_examples=100)
def test_nothing_stays_behind_who_gives_up(question: Scenario) -> None:
    """Accountants check blocks, seats and tokens in every event (tests/audit.py); here are the totals."""
    audit = audited(question)
    attempts, steps = audit.result.attempts, audit.result.steps
    finished, aborted = (sum(getattr(s, name) for s in audit.schedulers) for name in ("num_finished", "num_aborted"))
    left = sum(len(scheduler.ledger.running) + len(scheduler.ledger.waiting) for scheduler in audit.schedulers)
    reached, refused = ~np.isnan(attempts["engine_arrival"]), attempts["code"] > 0
    assert reached.sum() - refused.sum() == finished + aborted + left
    assert refused.sum() == (audit.moments[-1].rejected if audit.moments else 0)
    assert (attempts["replica"] >= 0).sum() == finished + aborted + left
    assert finished >= (attempts["status"] == COMPLETED).sum()
    in_log = int(steps["prefill_tokens"].sum() + (steps["decodes"] * steps["steps"]).sum())
    assert in_log == sum(account.paid for scheduler in audit.schedulers for account in scheduler.accounts.values())
    assert audit.result.meta["num_preemptions"] == attempts["num_preemptions"].sum() == steps["preemptions"].sum()
    assert audit.result.meta["prefix_cache_hits"] == attempts["cached_len"].sum()
    assert_tokens_of_attempts_are_counted(audit)
    for scheduler in audit.schedulers:
        if not scheduler.has_requests:
            assert scheduler.ledger.pool.num_free == scheduler.ledger.pool.num_blocks


def assert_tokens_of_attempts_are_counted(audit: Audit) -> None:
    """What an attempt was given is what the engine sampled for it: but for the token in flight, or past an EOS."""
    attempts, size = audit.result.attempts, len(audit.result.requests["status"])
    row = {name: index for index, name in enumerate((attempts["attempt"] * size + attempts["request"]).tolist())}
    for name, (request, account) in audit.accounts().items():
        ahead = account.sampled - int(attempts["output_len"][row[name]])
        lossless = attempts["status"][row[name]] == COMPLETED and request.output_len == request.max_tokens
        assert ahead in ((0,) if lossless else (0, 1))


@given(impatient_scenarios())
@settings(max_examples=100)
def test_every_request_ends_once_and_its_attempts_follow_each_other(question: Scenario) -> None:
    result = simulate(question)
    requests, attempts = result.requests, result.attempts
    policy = question.workload.client
    assert policy is not None
    row, number, status = attempts["request"], attempts["attempt"], attempts["status"]
    for index, (before, after) in enumerate(pairwise(row)):
        assert (
            (number[index + 1] == number[index] + 1) if before == after else (number[index + 1] == 0 and before < after)
        )
    assert number.max(initial=0) <= policy.retries
    last = np.append(row[1:] != row[:-1], True) if len(row) else np.zeros(0, bool)
    assert not np.isin(status[~last], [COMPLETED, UNFINISHED, CANCELLED]).any(), "nobody asks again who was answered"
    ends, sent = ticks(np.nan_to_num(attempts["end"])), ticks(attempts["arrival"])
    assert (sent[1:] > ends[:-1])[~last[:-1]].all(), "one attempt at a time"
    given_up = (requests["status"][row] == status) | (status == TIMED_OUT) | (status == REJECTED)
    assert given_up[last].all()
    assert (~np.isnan(requests["arrival"])).sum() == last.sum()
    never = np.isnan(requests["arrival"])
    assert np.isin(requests["status"][never], [CANCELLED, UNFINISHED]).all()
    assert (requests["status"][~never] != CANCELLED).all()
    assert_ends_tell_why(question, attempts)


def assert_ends_tell_why(question: Scenario, attempts: dict[str, Any]) -> None:
    """Patience ends to the tick; who has his answer had it in time; refusals are told at once."""
    policy, status = question.workload.client, attempts["status"]
    assert policy is not None
    limits = [ticks(np.array(limit)) for limit in (policy.timeout, policy.first_token_timeout) if limit is not None]
    sent, end = ticks(attempts["arrival"]), ticks(np.nan_to_num(attempts["end"]))
    waited = end - sent
    assert np.isin(waited[status == TIMED_OUT], limits).all()
    if policy.timeout is not None:
        assert (waited[status == COMPLETED] <= ticks(np.array(policy.timeout))).all()
    if policy.first_token_timeout is not None:
        first = ticks(np.nan_to_num(attempts["first_token"])) - sent
        limit = ticks(np.array(policy.first_token_timeout))
        assert (first[status == COMPLETED] <= limit).all()
        at_first = (status == TIMED_OUT) & (waited == limit)
        assert np.isnan(attempts["first_token"][at_first]).all()
    np.testing.assert_array_equal(status == REJECTED, (attempts["code"] > 0) & (status != TIMED_OUT))
    refused = status == REJECTED
    np.testing.assert_array_equal(attempts["end"][refused], attempts["engine_arrival"][refused])
    np.testing.assert_array_equal(np.isnan(attempts["end"]), status == UNFINISHED)


@given(scenarios(run={"max_time": None}))
@settings(max_examples=50)
def test_whoever_has_all_the_patience_in_the_world_sees_what_he_saw_without_a_client(question: Scenario) -> None:
    """A timeout that never comes changes no record, to the bit; but a chat ends at a prompt that is too long."""
    waiting = simulate(question.with_overrides(["workload.client={timeout: 500000 s, retries: 3}"]))
    plain = simulate(question)
    if question.workload.sessions is not None and (plain.requests["status"] == REJECTED).any():
        return
    for name in plain.requests:
        np.testing.assert_array_equal(waiting.requests[name], plain.requests[name], err_msg=name)
    assert (waiting.attempts["attempt"] == 0).all()
    assert plain.attempts == {}


# Timeouts


def alone(*overrides: str) -> Result:
    """One request of 10 tokens at a time 0: known to the engine at 12, 22, ... 102 ms, to its client 1 ms later."""
    return simulate(scenario(STEP, ALL_AT_ONCE, "workload.num_requests=1", "workload.input=16", "workload.output=10",
                             "engine.async_scheduling=false", *overrides))  # fmt: skip


@pytest.mark.parametrize(
    ("client", "status", "ended"),
    [
        ("timeout: 103 ms", COMPLETED, 103),
        ("timeout: 102.9999 ms", TIMED_OUT, 102.9999),
        ("first_token_timeout: 13 ms", COMPLETED, 103),
        ("first_token_timeout: 12.9999 ms", TIMED_OUT, 12.9999),
        ("first_token_timeout: 13 ms, timeout: 60 ms", TIMED_OUT, 60),
        ("timeout: 1 ms", TIMED_OUT, 1),
    ],
)
def test_an_answer_that_comes_at_the_very_end_is_in_time(client: str, status: int, ended: float) -> None:
    result = alone(f"workload.client={{{client}, retries: 0}}")
    assert result.requests["status"].tolist() == [status]
    assert milliseconds(result.attempts["end"]) == [ended]


def test_the_engine_lets_go_at_the_step_after_it_hears() -> None:
    """He gives up at 40 ms; the engine hears it at 42 ms, as it decides a step (42 ms): tokens known until then were
    generated, 4 of them, and of those 3 reached him."""
    result = alone("workload.client={timeout: 40 ms, retries: 0}")
    assert result.attempts["output_len"].tolist() == [4]
    assert milliseconds(result.requests["first_token"]) == [13]
    assert milliseconds(result.requests["finish"]) == [None]
    assert int(result.steps["steps"].sum()) == 4


def test_asynchronously_the_token_in_flight_is_dropped() -> None:
    """The step that was decided before the engine heard of it runs to its end, in vain."""
    late = "workload.client={timeout: 40 ms, retries: 0}"
    synchronous, asynchronous = alone(late), alone(late, "engine.async_scheduling=true")
    assert int(asynchronous.steps["steps"].sum()) == int(synchronous.steps["steps"].sum()) + 1
    assert asynchronous.attempts["output_len"].tolist() == synchronous.attempts["output_len"].tolist() == [4]


def test_who_waits_gets_the_seat_of_who_gives_up() -> None:
    """One seat. The first answer would take 1 s; its client gives up at 95 ms, and at the next step, 102 ms, the other
    one's prompt is computed."""
    result = simulate(scenario(
        STEP, ALL_AT_ONCE, "workload.num_requests=2", "workload.input=16", "engine.async_scheduling=false",
        "workload.classes=[{name: long, share: 0.5, output: 100, client: {timeout: 95 ms, retries: 0}},"
        " {name: short, share: 0.5, output: 3}]", "engine.max_num_seqs=1", "seed=3",
    ))  # fmt: skip
    assert result.requests["class_index"].tolist() == [0, 1]
    assert names(result.requests["status"]) == ["timed_out", "completed"]
    assert milliseconds(result.requests["scheduled"]) == [2, 102]
    assert milliseconds(result.requests["finish"]) == [None, 133]


def test_cached_blocks_survive_who_gives_up() -> None:
    """The second attempt finds the prompt of the first in the prefix cache: 96 of its 100 tokens, in whole blocks."""
    retry = "workload.client={timeout: 50 ms, retries: 1, backoff: {initial: 0, jitter: 0}}"
    cached, cold = (
        alone(retry, "workload.input=100", f"engine.enable_prefix_caching={on}") for on in ("true", "false")
    )
    assert cached.attempts["cached_len"].tolist() == [0, 96]
    assert cold.attempts["cached_len"].tolist() == [0, 0]


# Retries


def test_pauses_grow_up_to_a_limit() -> None:
    backoff = "backoff: {initial: 100 ms, factor: 3, max: 500 ms, jitter: 0}"
    result = alone(f"workload.client={{timeout: 20 ms, retries: 4, {backoff}}}")
    assert milliseconds(result.attempts["arrival"]) == [0, 120, 440, 960, 1480]
    assert names(result.attempts["status"]) == ["timed_out"] * 5
    assert milliseconds(result.requests["arrival"]) == [0]


def test_a_user_has_waited_since_he_first_asked() -> None:
    """Times to the first and last token are the user's: both attempts and the pause are inside."""
    result = simulate(scenario(
        STEP, "workload.arrivals={process: constant, rate: 20}", "workload.num_requests=2", "workload.input=16",
        "workload.output=10", "engine.async_scheduling=false", "engine.max_num_queued_reqs=1",
        "workload.client={retries: 1, backoff: {initial: 200 ms, jitter: 0}}",
    ))  # fmt: skip
    sent = milliseconds(result.requests["arrival"])
    assert milliseconds(result.attempts["arrival"]) == [sent[0], sent[1], sent[1] + 202]
    assert result.attempts["code"].tolist() == [0, 503, 0]
    assert summarize(result)["mean_ttft_ms"] == pytest.approx((13 + 215) / 2)


def test_jitter_takes_a_random_share_of_the_pause_and_shifts_nothing_else() -> None:
    def sent(*overrides: str) -> Any:
        refused = "engine.max_num_queued_reqs=0", "workload.num_requests=200"
        client = "workload.client={retries: 1, backoff: {initial: 1 s, jitter: 50 %}}"
        return simulate(scenario(STEP, client, *refused, *overrides)).attempts["arrival"].reshape(-1, 2)

    pause = np.diff(sent()).ravel() - 0.002
    assert 0.5 <= pause.min() < 0.52
    assert 0.98 < pause.max() <= 1
    np.testing.assert_allclose(np.mean(pause), 0.75, atol=0.03)
    np.testing.assert_array_equal(sent(), sent("cluster.replicas=2"))
    np.testing.assert_array_equal(np.diff(sent())[:100], np.diff(sent("workload.num_requests=100")))


def test_a_prompt_that_is_too_long_is_not_sent_again() -> None:
    result = alone("workload.input=5000", "engine.max_model_len=4096", "workload.client={retries: 5}")
    assert result.attempts["code"].tolist() == [400]
    assert names(result.requests["status"]) == ["rejected"]


def test_a_user_goes_on_after_his_last_attempt_and_a_chat_is_over() -> None:
    common = STEP, "workload.num_requests=6", "workload.input=16", "workload.client={timeout: 30 ms, retries: 1}"
    loop = simulate(scenario(*common, "workload.arrivals={process: closed_loop, users: 1}", "workload.output=10"))
    assert names(loop.requests["status"]) == ["timed_out"] * 6
    assert len(loop.attempts["request"]) == 12
    few = "workload.output={distribution: empirical, values: [1, 1, 1, 10]}"
    chats = simulate(scenario(*common, "workload.num_requests=90", "workload.sessions={turns: 3}", few))
    table = chats.requests["status"].reshape(30, 3).tolist()
    for chat in table:
        failed = chat.index(TIMED_OUT) if TIMED_OUT in chat else 3
        assert chat == [COMPLETED] * failed + [TIMED_OUT][: 3 - failed] + [CANCELLED] * (2 - failed)
    assert [COMPLETED, TIMED_OUT, CANCELLED] in table
    assert np.isnan(chats.requests["arrival"][chats.requests["status"] == CANCELLED]).all()


# The door


@given(
    st.integers(1, 1000),
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(0, 30 * 10**13), st.integers(1, 40)), min_size=1, max_size=20),
)
def test_a_bucket_lets_pass_what_its_rate_and_its_size_allow(
    rate: int, burst: int, asked: list[tuple[int, int]]
) -> None:
    """Against exact fractions: the level is that of a bucket which is filled all the time, however often one looks."""
    bucket, level, at = TokenBucket(rate, burst * 10**13), Fraction(rate * burst, 60), 0
    for gap, num_tokens in asked:
        at += gap
        level = min(Fraction(rate * burst, 60), level + Fraction(rate * gap, 60 * 10**13))
        assert bucket.holds(num_tokens, at - gap // 2) in (True, False)
        passes = bucket.holds(num_tokens, at)
        assert passes == (level >= num_tokens)
        if passes:
            bucket.take(num_tokens)
            level -= num_tokens


def test_requests_per_minute() -> None:
    """60 a minute in bursts of 2 s: of ten a second the bucket lets the first 2 pass, then one a second."""
    result = simulate(scenario(
        STEP, "workload.arrivals={process: constant, rate: 10}", "workload.num_requests=50", "workload.output=1",
        "workload.input=16", "cluster.rate_limit={requests_per_minute: 60, burst: 2 s}",
    ))  # fmt: skip
    passed = np.flatnonzero(result.requests["status"] == COMPLETED).tolist()
    assert passed == [0, 1, 10, 20, 30, 40]
    assert result.meta["refused"] == {"too_long": 0, "rate_limit": 44, "queue_full": 0}
    assert summarize(result)["statuses"]["rejected"] == 44


def test_tokens_per_minute_count_the_prompt_and_the_most_that_may_be_generated() -> None:
    """6,000 a minute are 100 a second, and a bucket of 2 s holds 200: a request of 60 + 40 passes every second."""
    result = simulate(scenario(
        STEP, "workload.arrivals={process: constant, rate: 2}", "workload.num_requests=12", "workload.output=1",
        "workload.input=60", "workload.max_tokens=40", "cluster.rate_limit={tokens_per_minute: 6000, burst: 2 s}",
    ))  # fmt: skip
    passed = np.flatnonzero(result.requests["status"] == COMPLETED).tolist()
    assert passed == [0, 1, 2, 4, 6, 8, 10]


def test_a_request_takes_from_both_buckets_or_from_none() -> None:
    """A prompt that never fits into the bucket of tokens costs the others no place in the bucket of requests."""
    result = simulate(scenario(
        STEP, ALL_AT_ONCE, "workload.num_requests=8", "workload.output=1",
        "workload.input={distribution: empirical, values: [10, 5000]}",
        "cluster.rate_limit={requests_per_minute: 120, tokens_per_minute: 6000, burst: 4 s}",
    ))  # fmt: skip
    long = result.requests["input_len"] == 5000
    assert 0 < long.sum() < 8
    np.testing.assert_array_equal(result.requests["status"] == COMPLETED, ~long)


def test_a_replica_lets_in_so_many_requests() -> None:
    """vLLM's max_num_queued_reqs counts who waits and who runs."""
    result = simulate(scenario(
        STEP, ALL_AT_ONCE, "workload.num_requests=9", "cluster.replicas=2", "engine.max_num_seqs=1",
        "engine.max_num_queued_reqs=3",
    ))  # fmt: skip
    assert names(result.requests["status"]) == ["completed"] * 6 + ["rejected"] * 3
    assert result.meta["refused"] == {"too_long": 0, "rate_limit": 0, "queue_full": 3}


def test_a_replica_lets_in_prompts_until_so_many_tokens_wait_for_their_first_token() -> None:
    """vLLM's max_num_queued_tokens: refused from 200 on, so that the second prompt of 150 still enters; after their
    first tokens (12 ms) another two."""
    result = simulate(scenario(
        STEP, "workload.arrivals={process: constant, rate: 200}", "workload.num_requests=5", "workload.input=150",
        "workload.output=100", "engine.max_num_queued_tokens=200", "engine.async_scheduling=false",
    ))  # fmt: skip
    at = milliseconds(result.requests["engine_arrival"])
    first = milliseconds(result.requests["first_token"])
    assert at == [at[0], at[0] + 5, at[0] + 10, at[0] + 15, at[0] + 20]
    assert names(result.requests["status"]) == ["completed", "completed", "rejected", "completed", "rejected"]
    assert first[0] == at[0] + 11


# What is reported


def storm(*overrides: str) -> Result:
    """Two seats, answers of 300 ms, 20 requests in 200 ms: those who give up after 700 ms twice never get one."""
    return simulate(scenario(
        STEP, "workload.arrivals={process: constant, rate: 100}", "workload.num_requests=20", "workload.input=16",
        "workload.output=30", "engine.max_num_seqs=2", "engine.async_scheduling=false",
        "workload.client={timeout: 700 ms, retries: 1, backoff: {initial: 100 ms, jitter: 0}}", *overrides,
    ))  # fmt: skip


def test_attempts_are_counted_and_what_they_were_given_in_vain() -> None:
    result = storm()
    found, attempts = summarize(result), result.attempts
    assert found["completed"] + found["failed"] == 20
    assert found["statuses"]["timed_out"] == found["failed"] > 5
    assert found["attempts"]["count"] == len(attempts["request"]) > 30
    assert found["attempts"]["per_request"] == len(attempts["request"]) / 20
    assert found["attempts"]["statuses"]["completed"] == found["completed"]
    lost = attempts["output_len"][attempts["status"] != COMPLETED]
    assert found["attempts"]["wasted_output_tokens"] == lost.sum() > 0
    assert found["total_output_tokens"] == 30 * found["completed"]
    decodes = int((result.steps["decodes"] * result.steps["steps"]).sum())  # all tokens but the first of each attempt
    assert decodes == (lost - (lost > 0)).sum() + 29 * found["completed"]
    assert found["window"]["end"] == pytest.approx(attempts["end"].max())


def test_refusals_are_counted_by_their_codes() -> None:
    found = summarize(storm("engine.max_num_queued_reqs=2"))
    assert found["attempts"]["codes"] == {"503": found["refused"]["queue_full"]}
    assert found["statuses"]["rejected"] == found["failed"]


def test_the_table_tells_of_attempts_only_where_there_are_some() -> None:
    with_clients, without = (benchmark_table(summarize(result)) for result in (storm(), storm("workload.client=null")))
    for line in ("Requests given up after a timeout:", "Attempts:", "Output tokens generated in vain:"):
        assert line in with_clients
        assert line not in without
    assert "Refused, queue full:" in benchmark_table(summarize(storm("engine.max_num_queued_reqs=2")))


def test_the_page_explains_what_clients_did() -> None:
    told = " ".join(explanations(summarize(storm())))
    assert "attempts a request on the mean" in told
    assert "earlier attempts, front end and delivery" in told
    assert "attempts" not in " ".join(explanations(summarize(storm("workload.client=null"))))


def test_attempts_are_kept_with_their_run(tmp_path: Path) -> None:
    result = storm()
    written = write_run(result, tmp_path / "run", csv=True)
    again = read_run(written.path).result
    for name in ATTEMPT_COLUMNS:
        np.testing.assert_array_equal(again.attempts[name], result.attempts[name], err_msg=name)
    assert summarize(again)["attempts"] == written.summary["attempts"]
    assert (tmp_path / "run" / "attempts.csv").read_text().count("timed_out") > 20
    write_run(storm("workload.client=null"), tmp_path / "plain")
    assert not (tmp_path / "plain" / "attempts.parquet").exists()


# What is refused


POOLS = (
    "cluster.pools={prefill: {replicas: 1}, decode: {replicas: 1}}",
    "cluster.kv_link={bandwidth: 50 GB/s}",
)


def test_a_rate_limit_stands_before_pools_too() -> None:
    result = simulate(scenario(
        *POOLS, ALL_AT_ONCE, "workload.num_requests=5", "cluster.rate_limit={requests_per_minute: 120, burst: 1 s}"
    ))  # fmt: skip
    assert names(result.requests["status"]) == ["completed"] * 2 + ["rejected"] * 3


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("workload.client={timeout: 1 s, first_token_timeout: 2 s}", "first_token_timeout: 2 s never comes before"),
        ("workload.client={timeout: 0 s}", "workload.client.timeout: must be greater than 0"),
        ("workload.client={retry: 3}", "unknown key 'retry'; did you mean 'retries'?"),
        ("workload.client={backoff: {jitter: 2}}", "workload.client.backoff.jitter: must be at most 1"),
        ("workload.client={backoff: {factor: 0.5}}", "workload.client.backoff.factor: must be at least 1"),
        ("cluster.rate_limit={}", "needs requests_per_minute or tokens_per_minute"),
        (
            "cluster.rate_limit={requests_per_minute: 6, burst: 5 s}",
            "burst: 6 requests per minute never make one within 5 s: at least 10 s do",
        ),
        ("engine.max_num_queued_reqs=-1", "engine.max_num_queued_reqs: must be at least 0"),
    ],
)
def test_a_wrong_key_is_told_with_its_remedy(override: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(TEXT, [override])
    assert words in str(caught.value)
