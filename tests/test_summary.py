"""The summary of a run: vLLM's keys, ours, and what happens where a number does not exist."""

import json
from typing import Any

import numpy as np
import pytest
from made_result import SECOND, Toy, poisson, with_status
from scenario_text import scenario

from simserve.report.summary import summarize
from simserve.spec.errors import ScenarioError
from simserve.spec.result import STATUSES, Result

VLLM_KEYS = [
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
    "request_throughput", "request_goodput", "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
    "max_concurrent_requests", "rtfx",
]  # fmt: skip
STATISTICS = ("mean", "median", "std", "p50", "p90", "p95", "p99")
"""Keys of a result file of `vllm bench serve` 0.32 without the lists of single requests."""


def summary(n: int = 150, *overrides: str, **changes: Any) -> dict[str, Any]:
    return summarize(poisson(n, rate=10).run(scenario=scenario(*overrides), **changes))


def test_has_every_key_of_vllm_in_its_order() -> None:
    found = list(summary())
    wanted = VLLM_KEYS + [f"{s}_{m}_ms" for m in ("ttft", "tpot", "itl", "e2el") for s in STATISTICS]
    assert [key for key in found if key in wanted] == wanted


def test_has_our_keys() -> None:
    wanted = {f"{s}_{m}_ms" for m in ("engine_ttft", "queue_time") for s in STATISTICS}
    wanted |= {"slo_attainment", "num_preemptions", "prefix_cache_hit_rate", "kv_cache_usage_peak", "saturation"}
    wanted |= {"tokens_per_s_per_gpu", "tokens_per_s_per_user", "cost_level", "extrapolated_steps", "trust", "window"}
    assert wanted <= set(summary())


def test_statistics_are_numpys_on_the_plain_lists() -> None:
    toy = poisson(150, rate=10)
    found = summarize(toy.run(scenario=scenario()))
    pairs = list(zip(toy.arrival, toy.tokens, strict=True))
    plain = {
        "ttft": [t[0] - a for a, t in pairs],
        "tpot": [(t[-1] - t[0]) / (len(t) - 1) for _, t in pairs if len(t) > 1],
        "itl": toy.gaps(),
        "e2el": [t[-1] - a for a, t in pairs],
    }
    for name, ticks in plain.items():
        values = np.array(ticks) / SECOND * 1e3
        expected = [values.mean(), np.median(values), values.std(), *np.percentile(values, (50, 90, 95, 99))]
        assert [found[f"{s}_{name}_ms"] for s in STATISTICS] == pytest.approx(expected, rel=1e-9)
        assert found[f"n_{name}"] == len(values)
    duration = (max(t[-1] for t in toy.tokens) - toy.arrival[0]) / SECOND
    tokens = sum(toy.output_len)
    assert found["duration"] == pytest.approx(duration)
    assert found["request_throughput"] == pytest.approx(150 / duration)
    assert found["output_throughput"] == pytest.approx(tokens / duration)
    assert found["total_token_throughput"] == pytest.approx((tokens + sum(toy.input_len)) / duration)


def test_p99_of_few_is_refused() -> None:
    few, enough = summary(99), summary(100)
    assert few["p99_ttft_ms"] is None
    assert few["n_ttft"] == 99
    assert few["p95_ttft_ms"] is not None
    assert enough["p99_ttft_ms"] is not None


def test_answers_of_one_token_have_no_tpot() -> None:
    result = Toy([0, 0, 0], [10, 10, 10], [1, 1, 1]).run(scenario=scenario("slo={tpot: 1 ms}"))
    found = summarize(result)
    assert (found["mean_tpot_ms"], found["n_tpot"]) == (None, 0)
    assert (found["mean_itl_ms"], found["n_itl"]) == (None, 0)
    assert found["tokens_per_s_per_user"] is None
    assert found["n_ttft"] == 3
    assert found["slo_met"] is True
    assert found["saturation"] == "stable"


@pytest.mark.parametrize("metric", ["ttft", "tpot", "itl", "e2el"])
def test_nothing_completed(metric: str) -> None:
    """inference-sim#926, #927: the report is there, rates are 0 and percentiles null; no limit is kept."""
    result = poisson(20, rate=10).run(scenario=scenario(f"slo={{{metric}: 1 s}}"))
    for row in range(20):
        with_status(result, row, "timed_out")
    found = summarize(result)
    assert (found["completed"], found["failed"], found["request_throughput"]) == (0, 20, 0.0)
    assert (found["mean_ttft_ms"], found["p50_itl_ms"], found["saturation"]) == (None, None, None)
    assert (found["request_goodput"], found["slo_attainment"], found["slo_met"]) == (0.0, 0.0, False)
    assert found["slo"][0]["limits"] == {metric: {"limit_ms": 1000.0, "value_ms": None, "met": False}}
    assert found["max_output_tokens_per_s"] == found["max_concurrent_requests"] == 0


def test_nothing_arrived() -> None:
    result = poisson(20, rate=10).run(scenario=scenario("slo={ttft: 1 s}"))
    result.requests["arrival"][:] = np.nan
    result.requests["status"][:] = STATUSES.index("cancelled")
    found = summarize(result)
    assert (found["num_prompts"], found["duration"], found["output_throughput"]) == (0, 0.0, 0.0)
    assert (found["slo_attainment"], found["slo_met"]) == (None, False)
    assert found["offered_rate"] is None


def test_a_warm_up_that_leaves_nothing_to_count_is_an_error() -> None:
    with pytest.raises(ScenarioError, match=r"run.warmup: 1000 s leaves no request that counts"):
        summary(20, "run.warmup=1000")


def test_statuses_add_up_to_what_arrived() -> None:
    result = poisson(60, rate=10).run(scenario=scenario())
    for row, status in enumerate(["rejected", "timed_out", "cancelled", "unfinished"]):
        with_status(result, row, status)
    found = summarize(result)
    assert found["statuses"] == {"completed": 56, "rejected": 1, "timed_out": 1, "cancelled": 1, "unfinished": 1}
    assert sum(found["statuses"].values()) == found["num_prompts"] == 60
    assert (found["completed"], found["failed"]) == (56, 3)


def test_warmup_is_stated_and_left_out() -> None:
    found, rest = summary(150), summary(150, "run.warmup=5")
    assert rest["window"]["warmup"] == 5
    assert rest["window"]["excluded_requests"] == 150 - rest["num_prompts"] > 0
    assert rest["n_itl"] < found["n_itl"]
    assert found["offered_rate"] == pytest.approx(10, rel=0.3)


def test_per_gpu_user_and_dollar() -> None:
    found = summary(150, "cluster.replicas=2", "cluster.tensor_parallel=4", "cluster.price_per_gpu_hour=3")
    assert found["num_gpus"] == 8
    assert found["tokens_per_s_per_gpu"] == found["output_throughput"] / 8
    assert found["total_tokens_per_s_per_gpu"] == found["total_token_throughput"] / 8
    assert found["tokens_per_s_per_user"] == 1000 / found["mean_tpot_ms"]
    assert found["cost_per_million_output_tokens"] == pytest.approx(24 / (found["output_throughput"] * 3600) * 1e6)
    assert summary(9, "cluster.price_per_gpu_hour=null")["cost_per_million_tokens"] is None


def test_kv_peak_counts_blocks_as_vllm_does() -> None:
    result = poisson(50, rate=10).run(scenario=scenario())
    result.steps["free_blocks"][3] = 1024
    assert summarize(result)["kv_cache_usage_peak"] == 1 - 1024 / 4096
    assert summarize(Result(**(_fields(result) | {"meta": {}})))["kv_cache_usage_peak"] is None


def test_no_hit_rate_without_a_prefix_cache() -> None:
    assert summary(20)["prefix_cache_hit_rate"] == 0.0
    assert summary(20, "engine.enable_prefix_caching=false")["prefix_cache_hit_rate"] is None


def test_load_in_vllms_words() -> None:
    def load(text: str) -> tuple[Any, ...]:
        found = summary(5, f"workload.arrivals={text}")
        return found["request_rate"], found["burstiness"], found["max_concurrency"]

    assert load("{process: poisson, rate: 3}") == (3, 1.0, None)
    assert load("{process: gamma, rate: 3, cv: 2}") == (3, 0.25, None)
    assert load("{process: constant, rate: 3}") == (3, "inf", None)
    assert load("{process: all_at_once}") == ("inf", None, None)
    assert load("{process: closed_loop, users: 7}") == ("inf", None, 7)
    assert load("{process: ramp, start_rate: 1, end_rate: 2}") == (None, None, None)


def test_classes_have_their_own_latencies() -> None:
    question = scenario("workload.classes=[{name: chat, share: 0.5, slo: {ttft: 1 ns}}, {name: batch, share: 0.5}]")
    toy = poisson(90, rate=10)
    result = toy.run(scenario=question, class_names=("chat", "batch"))
    result.requests["class_index"][:] = np.arange(90) % 3 == 0
    found = summarize(result)["classes"]
    assert found["batch"]["completed"] == 30
    assert found["batch"]["n_itl"] + found["chat"]["n_itl"] == len(toy.gaps())
    batch = np.array(toy.gaps(list(range(0, 90, 3)))) / SECOND * 1e3
    assert found["batch"]["p95_itl_ms"] == pytest.approx(np.percentile(batch, 95))
    assert (found["chat"]["slo_attainment"], found["batch"]["slo_attainment"]) == (0.0, None)


def test_one_class_has_no_table_of_classes() -> None:
    assert summary(5)["classes"] == {}


def test_trust_line_says_level_extrapolation_error_and_extensions() -> None:
    meta = {"cost_level": "kernels", "extrapolated_steps": 30, "total_steps": 1000, "extensions": ["swap"]}
    meta |= {"measured_error": None}
    trust = summary(5, meta=meta)["trust"]
    assert trust.startswith(
        "cost level kernels, step times from measured operators; 3.0 % of steps beyond the measured"
    )
    assert "error not measured for this level and GPU" in trust
    assert trust.endswith("not in vLLM: swap")
    assert (
        summary(5, meta={"cost_level": "constant"})["trust"] == "cost level constant, every step takes the stated time"
    )
    known = {"of": "like", "errors": {"mean TPOT": {"median_abs": 0.0433, "runs": 31}}, "whose": "x in bf16 on TP1"}
    measured = summary(5, meta=meta | {"measured_error": known})
    assert "error measured: mean TPOT 4.3 %, median of 31 runs of x in bf16 on TP1" in measured["trust"]
    assert measured["measured_error"] == known


def test_a_lost_token_is_a_broken_invariant() -> None:
    result = poisson(20, rate=10).run(scenario=scenario())
    result.requests["output_len"][3] += 1
    with pytest.raises(AssertionError, match="number of tokens"):
        summarize(result)


def test_is_json_and_the_same_every_time() -> None:
    texts = {json.dumps(summary(120, "slo={ttft: 1 s}"), allow_nan=False) for _ in range(2)}
    assert len(texts) == 1


def _fields(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ("scenario", "requests", "steps", "gaps", "class_names", "memory")}
