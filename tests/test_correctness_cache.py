"""Cases that other simulators got wrong: the prefix cache.

Each test carries the number of the report; `test_correctness_table.py` lists all cases and what covers them.
"""

import numpy as np
import pytest
from served import OFFLINE, SYNC, constant, serve

from simserve.engine.config import SchedulerConfig
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.prefix import ENDLESS, Branch
from simserve.engine.request import Request
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import simulate

ONE_BY_ONE = ("workload.arrivals={process: constant, rate: 0.1}", "workload.output=4")
BUDGETS = (16, 50, 4096)


def admitted(scheduler: VllmV1, request: Request) -> int:
    """Tokens that a request hits when it comes now and all before it are done."""
    scheduler.add(request)
    while scheduler.has_requests:
        scheduler.complete(scheduler.schedule())
    return request.num_cached_tokens


def asking(row: int, *path: tuple[Branch, int], num_tokens: int) -> Request:
    request = Request(row, row, num_tokens, 1, 1)
    own = request.own_branch()
    request.path = (*path, (own, ENDLESS))
    return request


def test_196_a_block_is_known_by_all_that_comes_before_it() -> None:
    """inference-sim#196, LLMServingSim (change log): hashes that were not chained, 53 collisions. The same 16 tokens
    behind two different heads are two blocks; behind the same head they are one."""
    scheduler = VllmV1(SchedulerConfig(8, 256, 256, 100, 16, async_scheduling=False))
    head, other_head = Branch(), Branch()
    tail_of = {head: Branch(), other_head: Branch()}
    for branch, tail in tail_of.items():
        assert admitted(scheduler, asking(0, (branch, 1), (tail, 2), num_tokens=40)) == 0
    for branch, tail in tail_of.items():
        assert admitted(scheduler, asking(1, (branch, 1), (tail, 2), num_tokens=40)) == 32


@pytest.mark.parametrize("mode", [SYNC, "engine.async_scheduling=true"])
def test_196_chunks_leave_the_same_blocks_in_the_cache(mode: str) -> None:
    """inference-sim#196: wrong hashes under chunked prefill. Whatever the chunks, every later request hits the same."""
    shared = ("workload.sessions={turns: 4}", "workload.shared_prefix={groups: 2, length: 90}", "workload.input=100")
    hits = []
    for budget in BUDGETS:
        engine = (f"engine.max_num_batched_tokens={budget}", "engine.max_num_seqs=8", mode)
        requests = simulate(constant(*shared, *ONE_BY_ONE, *engine, "workload.num_requests=40")).requests
        hits.append(requests["cached_len"].tolist())
    assert sum(hits[0]) > 2000
    assert hits[0] == hits[1] == hits[2]


@pytest.mark.parametrize("budget", BUDGETS)
def test_49_every_request_counts_once(budget: int) -> None:
    """LLMServingSim#49 (hits counted once per chunk), vllm#44431 (once per failed admission). Hit rate is hit tokens
    over prompt tokens of what was admitted, in a pool so full that the head often has to try again."""
    engine = ("engine.num_gpu_blocks=40", "engine.max_model_len=600", f"engine.max_num_batched_tokens={budget}")
    load = (OFFLINE, "workload.input=200", "workload.shared_prefix={groups: 3, length: 120}")
    result = simulate(constant(*engine, *load, "workload.output=100", "engine.max_num_seqs=8"))
    requests = result.requests
    assert requests["num_preemptions"].sum() > 5
    assert result.meta["prefix_cache_queries"] == requests["input_len"].sum()
    assert result.meta["prefix_cache_hits"] == requests["cached_len"].sum() > 0
    expected = requests["cached_len"].sum() / requests["input_len"].sum()
    assert summarize(result)["prefix_cache_hit_rate"] == pytest.approx(expected)


@pytest.mark.parametrize("length", [160, 250])
def test_1070_the_hit_rate_asked_for_is_the_one_that_comes_and_is_printed(length: int) -> None:
    """aiconfigurator#1070: a prefix in the model but not in the benchmark, TTFT 4 to 6 times off. One group, prompts of
    320 tokens: all but the first request hit the whole blocks of the prefix, and the table says so."""
    prefix = f"workload.shared_prefix={{groups: 1, length: {length}}}"
    result = simulate(constant(*ONE_BY_ONE, "workload.input=320", prefix))
    whole = length // 16 * 16
    assert result.requests["cached_len"].tolist() == [0] + [whole] * 99
    summary = summarize(result)
    assert summary["prefix_cache_hit_rate"] == pytest.approx(0.99 * whole / 320)
    assert f"{100 * summary['prefix_cache_hit_rate']:.1f}" in benchmark_table(summary)


def test_1167_blocks_shared_by_many_are_charged_once() -> None:
    """inference-sim#1167: prefix caching changed preemptions by 69 %. Four prompts of 112 tokens (7 blocks), admitted
    together, of which 64 (4 blocks) are one prefix, take 4 + 4 * 3 blocks, and no hit is charged again."""
    load = (OFFLINE, "workload.num_requests=4", "workload.input=112", "workload.output=2")
    for prefix, held in (("workload.shared_prefix={groups: 1, length: 64}", 4 + 4 * 3), ("seed=0", 4 * 7)):
        result = simulate(constant(*load, prefix, SYNC, "engine.num_gpu_blocks=101", "engine.max_model_len=1024"))
        assert result.steps["free_blocks"][0] == 100 - held


@pytest.mark.parametrize("seed", range(5))
def test_1317_caching_never_takes_more_blocks_for_the_same_batch(seed: int) -> None:
    """inference-sim#1167, #1317: preemption rose with prefix caching. Where steps are equally long
    with the cache and without, the batches are the same, and with it no step leaves fewer blocks free."""
    load = (
        *("workload.input={distribution: uniform, min: 1, max: 300}", "workload.arrivals.rate=40", f"seed={seed}"),
        *(
            "workload.shared_prefix={groups: 3, length: 128, adds: true}",
            "run.resolution=steps",
            "engine.num_gpu_blocks=4000",
        ),
    )
    engine = ("engine.max_model_len=4096", "engine.max_num_batched_tokens=65536")
    both = (f"engine.enable_prefix_caching={caching}" for caching in ("true", "false"))
    on, off = (simulate(constant(*load, *engine, caching)) for caching in both)
    np.testing.assert_array_equal(on.steps["running"], off.steps["running"])
    assert np.all(on.steps["free_blocks"] >= off.steps["free_blocks"])
    assert np.any(on.steps["free_blocks"] > off.steps["free_blocks"])


def test_515_a_round_hits_all_but_the_new_part() -> None:
    """inference-sim#515, #516, #517: round r's prompt is the previous prompt, the previous answer and the new turn, and
    it hits all whole blocks but those of the new part (the last token of an answer has no KV)."""
    chat = ("workload.sessions={turns: 5}", "workload.input=100", "workload.output=20", "workload.num_requests=5")
    requests = simulate(constant(*chat, "workload.arrivals.rate=1")).requests
    prompts = [100 + 120 * turn for turn in range(5)]
    assert requests["input_len"].tolist() == prompts
    assert requests["cached_len"].tolist() == [0, *((prompt + 20 - 1) // 16 * 16 for prompt in prompts[:-1])]


def test_a_prompt_that_is_cached_to_the_end_computes_its_last_block() -> None:
    """vLLM's rule 15, which most miscount: a cached prompt of k whole blocks hits k - 1, for its last token has to be
    computed to give the first new one."""
    result = serve([(0, 64, 1)])
    assert result.requests["cached_len"].tolist() == [0]
    load = ("workload.shared_prefix={groups: 1, length: 64}", "workload.num_requests=3", *ONE_BY_ONE)
    assert simulate(constant(*load, "workload.input=64")).requests["cached_len"].tolist() == [0, 48, 48]
