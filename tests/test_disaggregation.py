"""Prefill and decode pools: what they cost, and that what they cost shows in one place."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pooled import pooled, pools
from random_scenarios import scenarios
from scenario_text import scenario
from served import ASYNC, CONSTANT, SYNC
from single_steps import ticks
from test_laws import assert_same_records
from typer.testing import CliRunner

from simserve.cli import app
from simserve.cluster.pool import Pool
from simserve.cost import build_step_cost
from simserve.cost.pipeline import PipelineCost
from simserve.engine.acceptance import Acceptance
from simserve.engine.drafts import Drafts, speculation_by
from simserve.engine.ledger import Fetch
from simserve.engine.pace.stages import Stages
from simserve.engine.pace.steps import Steps
from simserve.engine.plan import StepPlan
from simserve.engine.replica import Listener, Replica
from simserve.engine.request_wise import RequestWise
from simserve.planning.capacity import find_capacity
from simserve.planning.executor import open_executor
from simserve.planning.fleet import find_fleet
from simserve.report.itl import pooled_gaps
from simserve.report.metrics import engine_ttft
from simserve.report.question import question_facts
from simserve.report.series import series
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import Simulation, scheduler_config, simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.spec.result import COMPLETED, REJECTED, Result
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import TICKS_PER_SECOND, to_ticks

ALONE = ("workload.arrivals={process: constant, rate: 0.2}", "workload.num_requests=5")
"""Requests of which each finds an idle fleet."""
MIXED = (
    "workload.input={distribution: uniform, min: 1, max: 20000}",
    "workload.output={distribution: uniform, min: 1, max: 60}",
)
CONSTANT_COST = {"constant_step": 0.01, "host": {}}
LLAMA_KV = 2 * 32 * 8 * 128 * 2
"""Bytes of KV of one token of Llama-3.1-8B: keys and values, layers, KV heads, head size, bf16."""


def gaps_of(result: Result, row: int) -> list[int]:
    """Gaps between the tokens of one request that are not a plain step, in ticks."""
    chosen = np.arange(len(result.requests["status"])) == row
    return [int(gap) for gaps, weights in pooled_gaps(result, chosen) for gap in np.repeat(gaps, weights)]


def serve_pooled(rows: Sequence[tuple[float, int, int]], *overrides: str) -> Result:
    """Serve requests (arrival in milliseconds, input_len, output_len) with steps of 10 ms."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        lines = [f"{arrival / 1000:.9f},{input_len},{output_len}" for arrival, input_len, output_len in rows]
        path.write_text("\n".join(["arrival,input_len,output_len", *lines]))
        return simulate(pooled(CONSTANT, SYNC, f"workload={{trace: {{file: {path}, format: csv}}}}", *overrides))


def milliseconds(result: Result, name: str) -> list[float]:
    return [round(time * 1000, 9) for time in result.requests[name].tolist()]


# A transfer that takes no time changes nothing, one that takes time changes one number


@given(st.integers(0, 99), st.sampled_from([300, 2048, 8192]), st.sampled_from([1, 16]))
@settings(max_examples=15)
def test_930_idle_pools_and_a_free_link_are_one_replica(seed: int, budget: int, block_size: int) -> None:
    """inference-sim#930, #931, #962, #1510, #1511, #1512: every time of every request, and every gap, with `==`."""
    engine = f"engine={{async_scheduling: false, max_num_batched_tokens: {budget}, block_size: {block_size}}}"
    seats = "engine.max_num_seqs=64"
    one = simulate(scenario(*ALONE, *MIXED, engine, seats, f"seed={seed}"))
    two = simulate(pooled(*ALONE, *MIXED, engine, seats, f"seed={seed}"))
    for name in ("arrival", "engine_arrival", "scheduled", "first_token", "finish", "output_len", "status"):
        np.testing.assert_array_equal(two.requests[name], one.requests[name], err_msg=name)
    for row in range(len(one.requests["status"])):
        assert sorted(gaps_of(two, row)) == sorted(gaps_of(one, row))
    left, right = summarize(two), summarize(one)
    for name in right:
        if name.startswith("std_"):
            assert left[name] == pytest.approx(right[name])  # summed in another order
        elif name.endswith("_ms") or "throughput" in name:
            assert left[name] == right[name], name


LINKS = ("{latency: 5 ms}", "{bandwidth: 10 GB/s}", "{bandwidth: 10 GB/s, backbone: 3 GB/s, latency: 1 ms}")


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_930_a_transfer_shifts_the_first_gap_and_the_end_by_itself(link: str, mode: str) -> None:
    """TTFT is the prefill replica's and does not move; the second token comes later by exactly the transfer."""
    free = simulate(pooled(*ALONE, *MIXED, mode))
    costly = simulate(pooled(*ALONE, *MIXED, mode, f"cluster.kv_link={link}"))
    before, after = free.requests, costly.requests
    started, ended = (ticks(after[f"kv_transfer_{name}"]) for name in ("start", "end"))
    took = np.where(after["output_len"] > 1, ended - started, 0)
    assert (took[after["output_len"] > 1] > 0).all()
    np.testing.assert_array_equal(after["first_token"], before["first_token"])
    np.testing.assert_array_equal(ticks(after["finish"]) - ticks(before["finish"]), took)
    for row, shift in enumerate(took.tolist()):
        one, other = sorted(gaps_of(free, row)), sorted(gaps_of(costly, row))
        assert sum(other) - sum(one) == shift
        assert [gap for gap in one if gap not in other] == [] or len([gap for gap in one if gap not in other]) == 1


def test_930_asynchronous_scheduling_cannot_hide_the_host_of_a_step_that_waits_for_its_prompt() -> None:
    """On one replica the second step is decided while the first one runs; a decode replica decides it afterwards. The
    first gap is longer by no more than the host's time for a step, and nothing else moves.
    """
    one, two = simulate(scenario(*ALONE, *MIXED, ASYNC)), simulate(pooled(*ALONE, *MIXED, ASYNC))
    cost = build_step_cost(scenario(ASYNC))
    at_most = max(cost.decode(1).at(context).latency - cost.decode(1).at(context).gpu for context in (1, 10**4, 10**5))
    np.testing.assert_array_equal(two.requests["first_token"], one.requests["first_token"])
    more = ticks(two.requests["finish"]) - ticks(one.requests["finish"])
    goes_on = one.requests["output_len"] > 1
    assert (more[~goes_on] == 0).all()
    assert (more[goes_on] > 0).all()
    assert (more[goes_on] <= at_most).all()


def test_930_a_busy_prefill_pool_delays_no_token_after_the_first() -> None:
    """Prompts queue for the prefill replica, answers do not: gaps stay those of a decode replica."""
    crowd = ("workload.arrivals={process: all_at_once}", "workload.input=4000", "workload.num_requests=20")
    one, two = summarize(simulate(scenario(*crowd, SYNC))), summarize(simulate(pooled(*crowd, SYNC)))
    assert two["p99_itl_ms"] < one["p99_itl_ms"] / 5


def test_pools_off_change_nothing(tmp_path: Path) -> None:
    """A question without pools says nothing of them anywhere."""
    result = simulate(scenario("workload.num_requests=5"))
    assert not [name for name in result.requests if "prefill" in name or "transfer" in name]
    assert list(result.gaps) == ["request", "step_before", "step_after"]
    assert "pools" not in result.meta


# What is sent


@pytest.mark.parametrize(
    ("model", "token"),
    [
        ("llama-3.1-8b", LLAMA_KV),
        ("{config: llama-3.1-8b, kv_dtype: fp8}", LLAMA_KV // 2),
        ("qwen2.5-7b", 2 * 28 * 4 * 128 * 2),
    ],
)
@pytest.mark.parametrize("tokens", [1, 16, 17, 100])
def test_bytes_are_those_of_whole_blocks_of_keys_and_values(model: str, token: int, tokens: int) -> None:
    """LLMServingSim sent Q, too. 2 x layers x KV heads x head size x bytes of the format x tokens, in whole blocks."""
    result = simulate(pooled(f"model={model}", f"workload.input={tokens}", "workload.num_requests=1"))
    assert result.requests["kv_transfer_bytes"].tolist() == [-(-tokens // 16) * 16 * token]


def test_a_latent_is_sent_in_place_of_keys_and_values() -> None:
    """DeepSeek's MLA caches 512 + 64 elements a layer; each of 8 GPUs holds, and fetches, a copy."""
    overrides = ("model={config: deepseek-v3, weight_dtype: fp8}", "cluster.gpu=h200-sxm-141gb")
    fleet = ("cluster.tensor_parallel=8", "engine.max_model_len=4096", "workload.input=160", "workload.num_requests=1")
    result = simulate(pooled(*overrides, *fleet, "cost.level=datasheet"))
    assert result.requests["kv_transfer_bytes"].tolist() == [8 * 160 * 61 * (512 + 64) * 2]


def test_of_window_layers_only_the_window_is_sent() -> None:
    """gpt-oss: half of 24 layers look back on 128 tokens: of 1,600 tokens they send those from 1,473 on, 8 blocks."""
    result = simulate(pooled("model=gpt-oss-20b", "workload.input=1600", "workload.num_requests=1"))
    block = 16 * 2 * 8 * 64 * 2
    assert result.requests["kv_transfer_bytes"].tolist() == [12 * block * (100 + 8)]


def test_a_transfer_lasts_its_latency_and_its_bytes_over_the_bandwidth() -> None:
    result = serve_pooled([(0, 1600, 3)], "cluster.kv_link={bandwidth: 10 GB/s, latency: 2 ms}")
    took = ticks(result.requests["kv_transfer_end"]) - ticks(result.requests["kv_transfer_start"])
    assert took.tolist() == [to_ticks(0.002) + 1600 * LLAMA_KV * TICKS_PER_SECOND // 10**10]


def test_two_transfers_to_one_replica_share_its_card_and_two_to_two_replicas_do_not() -> None:
    """Four blocks' worth of KV, 8 MiB, over 1 GB/s: 8.4 ms, and twice as long for two at once into one replica."""
    rows = [(0, 64, 3), (0, 64, 3)]
    alone = 64 * LLAMA_KV / 1e9
    link, two = "cluster.kv_link={bandwidth: 1 GB/s}", "cluster.pools={prefill: {replicas: 2}, decode: {replicas: 2}}"

    def took(*overrides: str) -> list[float]:
        requests = serve_pooled(rows, link, *overrides).requests
        return (requests["kv_transfer_end"] - requests["kv_transfer_start"]).tolist()

    assert took(two) == pytest.approx([alone, alone])
    assert took("cluster.pools={prefill: {replicas: 2}, decode: {}}") == pytest.approx([2 * alone, 2 * alone])
    assert took("cluster.pools={prefill: {}, decode: {replicas: 2}}") == pytest.approx([2 * alone, 2 * alone])
    backbone = "cluster.kv_link={bandwidth: 1 GB/s, backbone: 1 GB/s}"
    assert took(two, backbone) == pytest.approx([2 * alone, 2 * alone])


def test_what_the_decode_replica_has_cached_is_not_sent() -> None:
    """A system prompt of 50 blocks is sent once; of the others 10 blocks each, and of a prompt that is cached to the
    last block, nothing.
    """
    shared = ("workload.shared_prefix={groups: 1, length: 800}", *ALONE, "workload.output=5")
    sent = simulate(pooled(*shared, "workload.input=960")).requests["kv_transfer_bytes"]
    assert sent.tolist() == [960 * LLAMA_KV] + [160 * LLAMA_KV] * 4
    nothing = simulate(pooled(*shared, "workload.input=800", "cluster.kv_link={latency: 1 s}"))
    assert nothing.requests["kv_transfer_bytes"].tolist() == [800 * LLAMA_KV] + [0] * 4
    assert np.isnan(nothing.requests["kv_transfer_end"]).tolist() == [False] + [True] * 4
    assert (nothing.requests["finish"] - nothing.requests["arrival"])[1:].max() < 1.0


CHATS = (
    *("workload.sessions={turns: 3, think_time: 1 s, first_input: 160}", "workload.input=32", "workload.output=33"),
    *("workload.arrivals={process: constant, rate: 0.01}", "workload.num_requests=3"),
)


def test_the_next_turn_of_a_chat_finds_its_text_on_both_sides() -> None:
    """Turn 2 is 160 + 33 + 32 tokens. The prefill replica computed 160 of them before, the decode replica has all
    but the last token of its answer: 192, so that three blocks are sent.
    """
    requests = simulate(pooled(*CHATS)).requests
    assert requests["input_len"].tolist() == [160, 225, 290]
    assert requests["cached_len"].tolist() == [0, 160, 224]
    assert (requests["kv_transfer_bytes"] // LLAMA_KV).tolist() == [160, 48, 48]


def test_users_of_a_closed_loop_wait_for_their_answers() -> None:
    loop = ("workload.arrivals={process: closed_loop, users: 3, think_time: 10 ms}", "workload.num_requests=30")
    requests = simulate(pooled(*loop, "workload.output={distribution: uniform, min: 1, max: 4}")).requests
    assert (requests["status"] == COMPLETED).all()
    order = np.argsort(requests["arrival"])
    underway = [np.sum((requests["arrival"] < at) & (requests["finish"] >= at)) for at in requests["arrival"][order]]
    assert max(underway) <= 2


# Who goes where


def test_answers_of_one_token_end_at_the_prefill_pool() -> None:
    result = simulate(pooled(*ALONE, "workload.output=1", "cluster.kv_link={bandwidth: 1 GB/s}"))
    assert (result.requests["status"] == COMPLETED).all()
    assert result.requests["replica"].tolist() == result.requests["prefill_replica"].tolist() == [0] * 5
    assert set(result.steps["replica"].tolist()) == {0}
    assert not result.requests["kv_transfer_bytes"].any()


def test_short_prompts_stay() -> None:
    """Prompts below the threshold are computed by the decode replica; what it has cached does not count."""
    threshold = "cluster.pools={prefill: {}, decode: {}, stay_below: 512}"
    rows = [(0, 511, 3), (1000, 512, 3), (2000, 100, 1)]
    requests = serve_pooled(rows, threshold).requests
    assert requests["prefill_replica"].tolist() == [1, 0, 1]
    assert requests["replica"].tolist() == [1, 1, 1]
    shared = ("workload.shared_prefix={groups: 1, length: 800}", *ALONE, "workload.input=960", threshold)
    requests = simulate(pooled(*shared)).requests
    assert requests["prefill_replica"].tolist() == [0, 1, 1, 1, 1]
    assert requests["cached_len"].tolist() == [0, 800, 800, 800, 800]


@pytest.mark.parametrize("router", ["round_robin", "least_requests"])
def test_both_pools_are_used_evenly(router: str) -> None:
    pools = "cluster.pools={prefill: {replicas: 2}, decode: {replicas: 3}}"
    requests = simulate(pooled(pools, f"cluster.router={router}", "workload.num_requests=60")).requests
    assert np.bincount(requests["prefill_replica"]).tolist() == [30, 30]
    assert (np.bincount(requests["replica"], minlength=5)[2:] >= 17).all()


def test_a_router_counts_whom_a_decode_replica_will_get() -> None:
    """Two that arrive together are promised to two replicas, although neither has reached one yet."""
    pools = "cluster.pools={prefill: {}, decode: {replicas: 2}}"
    requests = serve_pooled([(0, 64, 20), (1, 64, 20)], pools, "cluster.router=least_requests").requests
    assert requests["replica"].tolist() == [1, 2]


# Blocks


SMALL = "engine={num_gpu_blocks: 65, max_model_len: 1024, max_num_seqs: 8, enable_prefix_caching: false}"


def test_a_prefill_replica_holds_blocks_until_they_are_sent() -> None:
    """Prompts of 40 of 64 blocks: the second one cannot begin before the first has been sent, 83.9 ms for 84 MB, and
    is not sent before the first has left the decode replica, after two steps.
    """
    result = serve_pooled([(0, 640, 3), (0, 640, 3)], SMALL, "cluster.kv_link={bandwidth: 1 GB/s}")
    sent = 640 * LLAMA_KV / 1e6
    assert milliseconds(result, "first_token") == pytest.approx([10, 10 + sent + 10])
    assert milliseconds(result, "kv_transfer_end") == pytest.approx([10 + sent, 10 + sent + 20 + sent])


def test_a_decode_replica_allocates_before_it_fetches() -> None:
    """Both prompts are computed; the transfer of the second waits until the first has left the decode replica."""
    pools = "cluster.pools={prefill: {replicas: 2}, decode: {}}"
    result = serve_pooled([(0, 640, 3), (0, 640, 3)], SMALL, pools, "cluster.kv_link={bandwidth: 1 GB/s}")
    sent = 640 * LLAMA_KV / 1e6
    assert milliseconds(result, "first_token") == [10, 10]
    assert milliseconds(result, "finish")[0] == pytest.approx(10 + sent + 20)
    assert milliseconds(result, "kv_transfer_start") == pytest.approx([10, 10 + sent + 20])


def test_a_request_that_is_preempted_after_its_transfer_is_computed_anew_where_it_is() -> None:
    """Two of 20 blocks in a pool of 44 grow until one must go; it comes back without the help of the prefill pool."""
    pools = "cluster.pools={prefill: {}, decode: {engine: {num_gpu_blocks: 45}}}"
    engine = "engine={num_gpu_blocks: 200, max_model_len: 640, max_num_seqs: 8, enable_prefix_caching: false}"
    result = serve_pooled([(0, 320, 60), (0, 320, 60)], engine, pools)
    requests = result.requests
    assert requests["num_preemptions"].tolist() == [0, 1]
    assert requests["output_len"].tolist() == [60, 60]
    prefilled = {number: result.steps["prefill_tokens"][result.steps["replica"] == number].sum() for number in (0, 1)}
    assert prefilled[0] == 640
    assert 320 < prefilled[1] <= 380
    assert np.bincount(result.gaps["request"]).tolist() == [1, 2]


def test_kv_that_was_evicted_with_its_token_in_flight_is_computed_by_the_decode_replica() -> None:
    """Asynchronous: the step after the prompt's last needs its blocks before its token is known.

    17 blocks, chunks of one: 16 tokens are computed at once and held for their transfer, seven prompts of two blocks
    take two steps, and in the third the long prompt before them finds no block left.
    """
    engine = "engine={num_gpu_blocks: 18, max_model_len: 256, max_num_seqs: 64, long_prefill_token_threshold: 16}"
    rows = [(0, 250, 4), *[(0, 32, 4)] * 7, (0, 16, 4)]
    link = "cluster.kv_link={latency: 1 s}"
    result = serve_pooled(rows, engine, link, "engine.scheduler_reserve_full_isl=false", ASYNC)
    requests = result.requests
    assert requests["output_len"].tolist() == [4] * 9
    assert np.flatnonzero(np.isnan(requests["kv_transfer_end"])).tolist() == [7]
    assert requests["kv_transfer_bytes"][7] == 0
    computed = result.steps["prefill_tokens"][result.steps["replica"] == 1].sum()
    assert computed == 32 + 1, "the prompt and the token that is known"
    assert result.meta["prefix_cache_hits"] == requests["cached_len"].sum()


# Reports


def test_reports_count_each_token_once() -> None:
    """Tokens of both pools are in the series, gaps between pools in the inter-token latencies."""
    result = simulate(pooled("cluster.kv_link={bandwidth: 5 GB/s}", "workload.num_requests=50"))
    summary, requests = summarize(result), result.requests
    assert summary["n_itl"] == (requests["output_len"] - 1).sum()
    assert summary["total_output_tokens"] == requests["output_len"].sum() == 50 * 128
    over_time = series(result)
    assert over_time is not None
    width = np.diff(over_time.edges)
    assert (over_time.output_rate * width).sum() == pytest.approx(50 * 128)
    assert (over_time.prefill_rate * width).sum() == pytest.approx(50 * 512)
    assert np.nanmin(engine_ttft(result)) > 0


def test_the_price_is_that_of_all_gpus() -> None:
    pools = "cluster.pools={prefill: {replicas: 2}, decode: {replicas: 3, tensor_parallel: 2}}"
    question = pooled(pools, "workload.num_requests=5")
    summary = summarize(simulate(question))
    assert question.cluster.num_gpus == summary["num_gpus"] == 8
    rate = summary["output_throughput"]
    assert summary["cost_per_million_output_tokens"] == pytest.approx(8 * 2.5 / 3600 / rate * 1e6)
    assert question.with_overrides(["cluster.replicas=3"]).cluster.num_gpus == 24


def test_transfers_are_in_the_summary_and_in_the_table() -> None:
    link = "cluster.kv_link={bandwidth: 5 GB/s, latency: 1 ms}"
    summary = summarize(simulate(pooled(*ALONE, "workload.input=1600", link)))
    took = 1600 * LLAMA_KV / 5e9 * 1e3 + 1
    assert summary["mean_kv_transfer_ms"] == pytest.approx(took)
    assert summary["n_kv_transfer"] == 5
    assert summary["mean_kv_transfer_bytes"] == 1600 * LLAMA_KV
    table = benchmark_table(summary)
    assert f"Mean KV transfer (ms):                   {took:.2f}" in table
    assert "KV sent per request (MB):                209.72" in table
    fleet = question_facts(pooled(link, "cluster.pools.decode.replicas=2"), summary)["Fleet"]
    of_one = "of 1 x h100-sxm-80gb"
    assert fleet == f"1 prefill replica {of_one}, 2 decode replicas {of_one}; KV over 5 GB/s a replica"


def test_kv_usage_is_that_of_each_replicas_own_blocks() -> None:
    """A prompt of 64 tokens holds 4 of 40 blocks in one pool, 5 of 80 (its first token, too) in the other."""
    sizes = "cluster.pools={prefill: {engine: {num_gpu_blocks: 41}}, decode: {engine: {num_gpu_blocks: 81}}}"
    summary = summarize(serve_pooled([(0, 64, 3)], "engine={max_model_len: 640, max_num_seqs: 8}", sizes))
    assert summary["kv_cache_usage_peak"] == pytest.approx(4 / 40)
    assert summary["pools"]["prefill"] == {"replicas": 1, "num_gpus": 1, "num_gpu_blocks": 41}
    assert summary["pools"]["decode"]["num_gpu_blocks"] == 81


def test_a_queue_between_the_pools_is_a_queue() -> None:
    """All prompts are computed at once, and wait for a decode replica that holds one answer at a time."""
    pools = "cluster.pools={prefill: {}, decode: {engine: {num_gpu_blocks: 65}}}"
    engine = "engine={max_model_len: 1024, max_num_seqs: 64, num_gpu_blocks: 6500}"
    summary = summarize(serve_pooled([(0, 640, 100)] * 20, engine, pools))
    assert summary["p99_ttft_ms"] is None
    assert summary["p95_ttft_ms"] < 100
    assert summary["saturation"] == "backlogged"


def test_capacity_and_fleet_of_pools_are_counted_in_sets_of_both() -> None:
    """One set of two prefill and one decode replica is 3 GPUs; a larger fleet has as many more of both."""
    question = pooled(
        *("slo={ttft: 300 ms, tpot: 20 ms}", "workload.num_requests=200", "workload.input=2000", "workload.output=20"),
        "cluster.pools={prefill: {replicas: 2}, decode: {}}",
    )
    with open_executor(1) as executor:
        found = find_capacity(question, 1, executor)
        fleet = find_fleet(question, 2.5 * found.interval.mean, found, executor)
    assert found.interval.mean > 10
    assert fleet.replicas in (2, 3, 4)
    assert fleet.num_gpus == 3 * fleet.replicas


# Drafts and stages

OF_EAGLE = "speculative: {method: eagle, num_speculative_tokens: 3, acceptance: 0.7}"
DRAFTS = f"engine.{OF_EAGLE.replace(': ', '=', 1)}"
STAGES = "cluster.pipeline_parallel=2"


class OneStage(Simulation):
    """Two pools whose replicas are pipelines of one stage."""

    def _replicas(self, pool: Pool, listener: Listener | None, fetch: Fetch | None) -> list[Replica]:
        scheduler = RequestWise(scheduler_config(pool.scenario, pool.ledger.num_gpu_blocks), fetch=fetch)
        return [Replica(self.clock, scheduler, Stages(PipelineCost([pool.cost])), listener=listener)]


PLAIN = {"async_scheduling": False, "scheduling_policy": "fcfs"}
one_by_one = pools(most_stages=1).flatmap(
    lambda cluster: scenarios(cluster=cluster, engine=PLAIN, cost=CONSTANT_COST, run={"resolution": "steps"})
)


@pytest.mark.plain_source
@given(one_by_one)
@settings(max_examples=60)
def test_one_stage_is_no_pipeline(question: Scenario) -> None:
    """Every column of every record is that of plain replicas."""
    assert_same_records(OneStage(question).run(), simulate(question))


class WithoutVerifications(RequestWise):
    """Counts decodes again, which the cost of an engine without drafts knows."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        plan.chunks = plan.chunks[plan.num_decodes :]
        return plan


class NoDrafts(Simulation):
    """Two pools whose schedulers verify no drafts, request by request."""

    def _replicas(self, pool: Pool, listener: Listener | None, fetch: Fetch | None) -> list[Replica]:
        config = scheduler_config(pool.scenario, pool.ledger.num_gpu_blocks)
        drafts = Drafts(speculation_by("ngram", 0), Acceptance((), 1.0, 0))
        scheduler = WithoutVerifications(config, drafts, fetch=fetch)
        return [Replica(self.clock, scheduler, Steps(pool.cost, skip_equal_steps=False), listener=listener)]


@pytest.mark.plain_source
@given(one_by_one)
@settings(max_examples=60)
def test_no_drafts_are_no_speculation(question: Scenario) -> None:
    """Every column of every record is that of plain replicas."""
    assert_same_records(NoDrafts(question).run(), simulate(question))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("overrides", [(SYNC,), (ASYNC,), (STAGES,)])
def test_drafts_that_are_all_right_come_with_every_token_after_the_second(
    count: int, overrides: tuple[str, ...]
) -> None:
    """The prefill replica gives one token, the first step of the decode replica one, every further one 1 + k."""
    drafts = f"engine.speculative={{method: eagle, num_speculative_tokens: {count}, acceptance: 1}}"
    result = simulate(pooled(*ALONE, "workload.output=42", drafts, *overrides))
    steps = result.requests["last_step"] - result.gaps["step_after"]
    assert steps.tolist() == [-(-40 // (1 + count))] * 5


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("overrides", [(SYNC, DRAFTS), (ASYNC, DRAFTS), (STAGES,), (STAGES, DRAFTS)])
def test_drafts_and_stages_do_not_hide_a_transfer(link: str, overrides: tuple[str, ...]) -> None:
    """No first token moves; all others of a request that finds an idle fleet come later by its transfer."""
    free = simulate(pooled(*ALONE, *MIXED, *overrides)).requests
    costly = simulate(pooled(*ALONE, *MIXED, *overrides, f"cluster.kv_link={link}")).requests
    took = np.where(costly["output_len"] > 1, ticks(costly["kv_transfer_end"]) - ticks(costly["kv_transfer_start"]), 0)
    assert took.any()
    np.testing.assert_array_equal(costly["first_token"], free["first_token"])
    np.testing.assert_array_equal(ticks(costly["finish"]) - ticks(free["finish"]), took)


@pytest.mark.parametrize(
    ("drafter", "layers"),
    [
        ("method: ngram", 32),
        ("method: eagle", 33),
        ("method: mtp", 33),
        ("method: draft_model, draft_model: llama-3.2-3b", 60),
    ],
)
@pytest.mark.parametrize("stages", [1, 2])
def test_kv_of_the_drafter_is_sent_too(drafter: str, layers: int, stages: int) -> None:
    """Its layers, of the model's KV heads and head size, lie in the same blocks. Llama-3.2-3B has 28. Stages hold
    a part of the layers each: all are sent.
    """
    drafts = f"engine.speculative={{{drafter}, num_speculative_tokens: 3, acceptance: 0.7}}"
    fleet = f"cluster.pipeline_parallel={stages}"
    result = simulate(pooled("workload.input=100", "workload.num_requests=1", drafts, fleet))
    assert result.requests["kv_transfer_bytes"].tolist() == [7 * 16 * layers * LLAMA_KV // 32]


def test_a_pool_may_have_stages_of_its_own() -> None:
    """An engine in stages is synchronous unless it is told otherwise; the other pool stays as it was."""
    question = pooled("cluster.pools={prefill: {pipeline_parallel: 4}, decode: {tensor_parallel: 2}}", DRAFTS)
    assert (question.cluster.of_pool("prefill").num_gpus, question.cluster.of_pool("decode").num_gpus) == (4, 2)
    assert question.cluster.pools is not None
    assert not question.cluster.pools.prefill.engine.async_scheduling
    assert question.cluster.pools.decode.engine.async_scheduling
    result = simulate(question)
    assert (result.requests["status"] == COMPLETED).all()
    fleet = question_facts(question, summarize(result))["Fleet"]
    of_four, of_two = "of 4 x h100-sxm-80gb in 4 stages", "of 2 x h100-sxm-80gb"
    assert fleet.startswith(f"1 prefill replica {of_four}, 1 decode replica {of_two}; KV over")


@pytest.mark.parametrize(("blocks", "padding"), [(4, 0), (40, 6)])
def test_a_request_goes_on_without_padding_where_that_finds_no_block(blocks: int, padding: int) -> None:
    """Prompts of 14 and 30 tokens, and a token each, hold all three blocks; three drafts more would need two others.
    Nothing waits for that: both have their second token 10 ms after the first.
    """
    drafts = "speculative: {method: ngram, num_speculative_tokens: 3, acceptance: 1}"
    engine = f"{{max_model_len: 48, max_num_seqs: 8, num_gpu_blocks: {blocks}, enable_prefix_caching: false, {drafts}}}"
    result = serve_pooled([(0, 14, 2), (0, 30, 2)], f"engine={engine}")
    assert milliseconds(result, "finish") == [20, 20]
    assert result.steps["draft_tokens"].tolist() == [0, padding]
    assert result.steps["decodes"].tolist() == [0, 2]


# What cannot be


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["cluster.kv_link=null"], "cluster.kv_link: is needed: what KV crosses between the pools"),
        (["cluster.pools=null"], "cluster.kv_link: would be ignored: without cluster.pools no KV is sent"),
        (["cluster.pools.decode=null", "cluster.pools={prefill: {}}"], "cluster.pools.decode: is needed and not given"),
        (["cluster.pools.decode.engine={block_size: 32}"], "decode.engine.block_size: 32 is not 16"),
        (["cluster.pools.decode.engine={max_model_len: 99}"], "decode.engine.max_model_len: 99 is not 131072"),
        (["cluster.pools.decode.gpu=l4-24gb"], "decode.gpu: another GPU in one of the pools is not modelled yet"),
        (["cluster.pools.prefill.tensor_parallel=3"], "cluster.pools.prefill.tensor_parallel: the 32 attention heads"),
        (["cluster.pools.prefill.engine={max_num_seqs: 0}"], "cluster.pools.prefill.engine.max_num_seqs: must be"),
        (["engine.max_num_seqs=0"], "engine.max_num_seqs: must be at least 1, got 0"),
        (["cluster.pools.decode.engine={seqs: 3}"], "decode.engine.seqs: unknown key 'seqs'"),
        (["engine.scheduler=prefill_first"], "engine.scheduler: prefill_first is not modelled with pools yet"),
        (["run.resolution=kernels"], "run.resolution: kernels is not modelled with cluster.pools yet"),
        (
            ["cluster.pools.decode={pipeline_parallel: 2, engine: {async_scheduling: true}}"],
            "cluster.pools.decode.engine.async_scheduling: is not modelled with pipeline stages yet",
        ),
        (
            ["cluster.pools.prefill.pipeline_parallel=33"],
            "cluster.pools.prefill.pipeline_parallel: 33 stages of 1 GPUs",
        ),
        (
            [f"cluster.pools.decode.engine={{{OF_EAGLE}}}"],
            "cluster.pools.decode.engine.speculative: must be that of the prefill pool",
        ),
        (["engine.max_num_queued_reqs=3"], "max_num_queued_reqs: is not modelled with pools yet"),
        (["cluster.kv_link={bandwidth: 0}"], "cluster.kv_link.bandwidth: must be greater than 0"),
        (["cluster.kv_link=50 GB/s"], "cluster.kv_link: expected a mapping (key: value), got '50 GB/s'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(overrides: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        pooled().with_overrides(overrides)
    assert said in str(caught.value)


def test_each_pool_may_have_its_own_engine() -> None:
    """What a pool does not state it takes from `engine`, and the rest is filled as vLLM would fill it."""
    question = pooled(
        "engine={max_num_seqs: 128, cuda_graph: {mode: piecewise}}",
        "cluster.pools={prefill: {engine: {max_num_batched_tokens: 4096}}, decode: {engine: {max_num_seqs: 512}}}",
    )
    pools = question.cluster.pools
    assert pools is not None
    prefill, decode = pools.prefill.engine, pools.decode.engine
    assert (prefill.max_num_seqs, prefill.max_num_batched_tokens) == (128, 4096)
    assert (decode.max_num_seqs, decode.max_num_batched_tokens) == (512, 8192)
    assert prefill.cuda_graph.mode == decode.cuda_graph.mode == "piecewise"
    assert prefill.cuda_graph.capture_sizes[-1] == 256
    assert decode.cuda_graph.capture_sizes[-1] == 512
    assert parse_scenario(question.to_yaml()) == question


def test_a_rate_limit_stands_before_both_pools() -> None:
    limit = "cluster.rate_limit={requests_per_minute: 60, burst: 1 s}"
    requests = simulate(pooled("workload.arrivals={process: constant, rate: 2}", limit)).requests
    assert (requests["status"] == REJECTED).sum() == pytest.approx(50, abs=2)


def test_commands_that_look_at_one_engine_look_at_a_pool(tmp_path: Path) -> None:
    """`simserve memory` shows both pools, `simserve step` the one that would run such a step."""
    path = tmp_path / "pools.yaml"
    pools = "cluster.pools={prefill: {engine: {max_num_batched_tokens: 16384}}, decode: {tensor_parallel: 2}}"
    path.write_text(pooled(pools).to_yaml())
    ledgers = json.loads(CliRunner().invoke(app, ["memory", str(path), "--json"]).stdout)
    assert ledgers["prefill"]["activations"] > ledgers["decode"]["activations"]
    assert ledgers["decode"]["num_gpu_blocks"] > 2 * ledgers["prefill"]["num_gpu_blocks"]
    one = json.loads(CliRunner().invoke(app, ["step", str(path), "--json", "--decodes", "8"]).stdout)
    other = json.loads(CliRunner().invoke(app, ["step", str(path), "--json", "--prefill", "512"]).stdout)
    assert any(operator["bound"] == "network" for operator in one["operators"])
    assert not any(operator["bound"] == "network" for operator in other["operators"])
