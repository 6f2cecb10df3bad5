"""Latencies, windows, peaks, saturation and objectives against plain loops over the token times of a toy server."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_result import MILLISECOND, SECOND, Toy, poisson, with_status
from scenario_text import scenario

from simserve.report.metrics import completed, e2el, engine_ttft, queue_time, tpot, ttft
from simserve.report.objective import endless_values, good_requests, judge, percentile_with_failures
from simserve.report.sample import Values
from simserve.report.saturation import saturation
from simserve.report.window import Window, hit_rate, peak_concurrency, peak_output_rate, status_counts
from simserve.spec.result import Result


def whole(result: Result) -> Window:
    return Window.of(result)


def judged(result: Result, replicas: int = 1) -> str | None:
    window = whole(result)
    return saturation(result.requests, window.measured, window.end, replicas)


def test_latencies_are_those_of_the_token_times() -> None:
    toy = poisson(120, rate=30, delivery=3 * MILLISECOND, front_end=2 * MILLISECOND)
    result = toy.run()
    for row, (arrival, tokens) in enumerate(zip(toy.arrival, toy.tokens, strict=True)):
        assert ttft(result.requests)[row] == pytest.approx((tokens[0] - arrival) / SECOND, rel=1e-12)
        assert e2el(result.requests)[row] == pytest.approx((tokens[-1] - arrival) / SECOND, rel=1e-12)
        if len(tokens) == 1:
            assert np.isnan(tpot(result.requests)[row])
        else:
            expected = (tokens[-1] - tokens[0]) / (len(tokens) - 1) / SECOND
            assert tpot(result.requests)[row] == pytest.approx(expected, rel=1e-9)


def test_ttft_includes_the_queue_and_its_parts_add_up() -> None:
    """llm-d-inference-sim#266: TTFT is first token - arrival; front end, queue, prefill and delivery are its parts."""
    toy = poisson(60, rate=200, seats=2, delivery=3 * MILLISECOND, front_end=2 * MILLISECOND)
    requests = (result := toy.run()).requests
    prefill = engine_ttft(result) - queue_time(requests)
    parts = 0.002 + queue_time(requests) + prefill + 0.003
    assert ttft(requests) == pytest.approx(parts, rel=1e-9)
    assert queue_time(requests) == pytest.approx(requests["scheduled"] - requests["arrival"] - 0.002, abs=1e-12)
    assert queue_time(requests).max() > 1.0
    assert np.all(ttft(requests) > queue_time(requests))


def test_client_and_engine_differ_by_the_front_end_exactly() -> None:
    """aisimulate#288: both views are there under two names; alone on the server they differ by front end + delivery."""
    requests = (result := Toy([0], [100], [9], delivery=3 * MILLISECOND, front_end=2 * MILLISECOND).run()).requests
    assert ttft(requests)[0] - engine_ttft(result)[0] == pytest.approx(0.005, rel=1e-12)


def test_warmup_leaves_early_requests_out() -> None:
    result = poisson(100, rate=20).run(scenario=scenario("run.warmup=2 s"))
    window = Window.of(result)
    late = result.requests["arrival"] >= 2.0
    assert 0 < window.excluded == 100 - late.sum()
    assert np.array_equal(window.measured, late)
    assert window.start == result.requests["arrival"][late].min()
    assert window.end == result.requests["finish"][late].max()


def test_a_request_that_never_came_is_not_counted() -> None:
    """inference-sim#183, #498: what arrived = what ended in one of the ways, and nothing else."""
    result = poisson(50, rate=20).run()
    result.requests["arrival"][7] = np.nan
    with_status(result, 7, "unfinished")
    with_status(result, 8, "rejected")
    counts = status_counts(result.requests, whole(result).measured)
    assert counts == {"completed": 48, "rejected": 1, "timed_out": 0, "cancelled": 0, "unfinished": 0}


def test_an_unknown_status_is_a_broken_invariant() -> None:
    result = poisson(5, rate=20).run()
    result.requests["status"][2] = 9
    with pytest.raises(AssertionError, match="status"):
        status_counts(result.requests, whole(result).measured)


def test_a_request_served_before_it_came_is_a_broken_invariant() -> None:
    result = poisson(5, rate=20).run()
    result.requests["arrival"][2] = result.requests["first_token"][2] + 1
    with pytest.raises(AssertionError, match="before it came"):
        ttft(result.requests)


def test_unfinished_requests_stretch_the_window_to_the_end_of_the_run() -> None:
    result = poisson(50, rate=20).run()
    last = int(np.argmax(result.requests["finish"]))
    end = result.requests["finish"][last]
    result.requests["finish"][last] = np.nan
    with_status(result, last, "unfinished")
    assert whole(result).end == pytest.approx(end)
    horizon = end - 0.001
    assert whole(replace(result, scenario=scenario(f"run.max_time={horizon}"))).end == pytest.approx(horizon)


def vllm_peaks(toy: Toy) -> tuple[int, int]:
    """Seconds counted as `vllm bench serve` does, token by token."""
    start = min(toy.arrival)
    tokens = Counter((t - start) // SECOND for times in toy.tokens for t in times)
    under_way: Counter[int] = Counter()
    for arrival, times in zip(toy.arrival, toy.tokens, strict=True):
        under_way.update(range((arrival - start) // SECOND, (times[-1] - start) // SECOND + 1))
    return max(tokens.values()), max(under_way.values())


@given(st.integers(1, 80), st.integers(5, 60), st.integers(1, 2), st.integers(0, 10**6))
def test_peaks_are_counted_in_seconds(n: int, rate: int, replicas: int, seed: int) -> None:
    toy = poisson(n, rate, seed, delivery=7 * MILLISECOND, replicas=replicas)
    result = toy.run()
    window = whole(result)
    done = completed(result.requests, window.measured)
    found = peak_output_rate(result, done, window.start), peak_concurrency(result.requests, done, window.start)
    assert found == vllm_peaks(toy)


def test_hit_rate_counts_each_admitted_request_once() -> None:
    """LLMServingSim#49, vllm#44431: hit tokens over prompt tokens of what was admitted."""
    result = Toy([0, 0, 0], [100, 300, 999], [2, 2, 2]).run()
    result.requests["cached_len"][:] = [96, 0, 0]
    result.requests["scheduled"][2] = np.nan
    with_status(result, 2, "rejected")
    assert hit_rate(result.requests, whole(result).measured) == 96 / 400


def load(rate: float, n: int = 800, **fields: Any) -> Result:
    """Requests of 30 ms service at one seat: capacity is 1 / 30 ms."""
    toy = poisson(n, rate, seats=1, base=10 * MILLISECOND, per_sequence=0, per_token=0, **fields)
    toy.output_len = [3] * n
    return toy.run()


def test_saturation_of_a_calm_load_is_stable() -> None:
    assert judged(load(rate=15)) == "stable"
    assert judged(load(rate=26)) == "stable"


def test_saturation_just_above_capacity_is_backlogged() -> None:
    assert judged(load(rate=35)) == "backlogged"


def test_saturation_far_above_capacity_is_overloaded() -> None:
    assert judged(load(rate=66)) == "overloaded"


def test_saturation_without_a_queue_for_seats() -> None:
    """A server that admits everything and slows down is overloaded as well: its requests pile up in the batch."""
    toy = poisson(1000, rate=60, seats=2000, per_sequence=3 * MILLISECOND)
    assert judged(toy.run()) == "overloaded"


def test_saturation_of_a_short_run_of_long_requests_is_not_judged_by_its_start() -> None:
    toy = poisson(40, rate=20, seats=64)
    toy.output_len = [900] * 40
    assert judged(toy.run()) == "stable"


def test_saturation_of_a_batch_at_once() -> None:
    assert judged(Toy([0] * 40, [100] * 40, [20] * 40, seats=4).run()) == "backlogged"
    assert judged(Toy([0] * 4, [100] * 4, [20] * 4, seats=4).run()) == "stable"


def test_saturation_of_nothing_is_unknown() -> None:
    result = poisson(5, rate=20).run()
    for row in range(5):
        with_status(result, row, "unfinished")
    assert judged(result) is None


def test_goodput_is_what_kept_every_limit() -> None:
    toy = poisson(200, rate=22, stalls={5: {2: 30}})
    result = toy.run(scenario=scenario("slo={ttft: 40 ms, tpot: 5.4 ms, e2el: 300 ms}"))
    good = 0
    for arrival, times in zip(toy.arrival, toy.tokens, strict=True):
        per_token = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0
        good += (
            times[0] - arrival <= 0.04 * SECOND and per_token <= 0.0054 * SECOND and times[-1] - arrival <= 0.3 * SECOND
        )
    (verdict,) = judge(result, whole(result))
    assert 0 < verdict.good == good < 200
    assert verdict.attainment == good / 200


def test_an_answer_of_one_token_keeps_its_tpot_limit() -> None:
    result = Toy([0], [100], [1]).run(scenario=scenario("slo={tpot: 1 ns}"))
    (verdict,) = judge(result, whole(result))
    assert verdict.met
    assert (verdict.good, verdict.limits[0].value) == (1, None)


def test_a_limit_on_gaps_is_one_on_all_gaps_together() -> None:
    toy = poisson(100, rate=20, stalls={3: {2: 100}})
    result = toy.run(scenario=scenario("slo={percentile: 99, itl: 6 ms}"))
    (verdict,) = judge(result, whole(result))
    (limit,) = verdict.limits
    assert limit.value == pytest.approx(np.percentile(toy.gaps(), 99) / SECOND)
    assert limit.met
    assert verdict.good == 100


def test_failures_break_the_limits() -> None:
    """inference-perf, GuideLLM: a request that failed is not one that was fast."""
    result = poisson(100, rate=10).run(scenario=scenario("slo={percentile: 95, ttft: 10 s}"))
    assert judge(result, whole(result))[0].met
    for row in range(6):
        with_status(result, row, "rejected")
    (verdict,) = judge(result, whole(result))
    assert not verdict.met
    assert verdict.attainment == 0.94
    assert verdict.limits[0].value is None


LIMITS = ("ttft", "tpot", "itl", "e2el")


@pytest.mark.parametrize("metric", LIMITS)
@pytest.mark.parametrize(("failures", "met"), [(4, True), (5, False), (100, False)])
def test_failures_break_a_limit_on_whatever_metric(metric: str, failures: int, met: bool) -> None:
    """No answer comes near 60 s: what decides is the share of requests that failed, 5 % for a p95."""
    toy = poisson(100, rate=10)
    toy.output_len = [30] * 100
    result = toy.run(scenario=scenario(f"slo={{percentile: 95, {metric}: 60 s}}"))
    for row in range(failures):
        with_status(result, 7 * row % 100, ("rejected", "timed_out", "cancelled", "unfinished")[row % 4])
    (verdict,) = judge(result, whole(result))
    assert verdict.met is met
    assert (verdict.limits[0].value is None) is not met
    assert verdict.good == 100 - failures


def test_a_failed_request_is_a_request_s_worth_of_endless_gaps() -> None:
    toy = poisson(200, rate=20, stalls={3: {2: 100}})
    result = toy.run(scenario=scenario("slo={percentile: 90, itl: 1 s}"))
    failed = [5, 50, 120]
    for row in failed:
        with_status(result, row, "timed_out")
    gaps = toy.gaps([row for row in range(200) if row not in failed])
    endless = [10**18] * int(np.ceil(3 * len(gaps) / 197))
    (limit,) = judge(result, whole(result))[0].limits
    assert limit.value == pytest.approx(np.percentile(gaps + endless, 90) / SECOND)
    assert limit.value > np.percentile(gaps, 90) / SECOND


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_metric_of_one_value_a_request_has_one_endless_value_a_failure(known: int, none: int, failures: int) -> None:
    sample = Values(np.concatenate([np.ones(known), np.full(none, np.nan)]))
    assert endless_values(sample, known + none, failures) == failures


@given(
    st.lists(st.floats(0, 1e3), min_size=1, max_size=40),
    st.integers(0, 10),
    st.sampled_from([1.0, 50.0, 90.0, 95.0, 99.0]),
)
def test_failures_count_as_endless(values: list[float], failures: int, percentile: float) -> None:
    column = np.array(values)
    found = percentile_with_failures(Values(column), failures, percentile)
    if failures == 0:
        assert found == np.percentile(column, percentile)
    else:
        long = np.concatenate([column, np.full(failures, 1e300)])
        expected = np.percentile(long, percentile)
        assert found == (np.inf if expected > 1e6 else expected)


def test_classes_have_their_own_objectives() -> None:
    chat, batch, rest = (
        "{name: chat, share: 0.5, slo: {ttft: 1 ns}}",
        "{name: batch, share: 0.25}",
        "{name: rest, share: 0.25}",
    )
    question = scenario(f"workload.classes=[{chat}, {batch}, {rest}]", "slo={ttft: 10 s}")
    result = poisson(100, rate=10).run(scenario=question, class_names=("chat", "batch", "rest"))
    result.requests["class_index"][:] = np.arange(100) % 3
    of_chat, of_others = judge(result, whole(result))
    assert (of_chat.classes, of_chat.met, of_chat.good, of_chat.requests) == (("chat",), False, 0, 34)
    assert (of_others.classes, of_others.met, of_others.good, of_others.requests) == (("batch", "rest"), True, 66, 66)
    assert good_requests(result, whole(result).measured, None) is None
