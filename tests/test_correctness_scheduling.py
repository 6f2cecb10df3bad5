"""Cases that other simulators got wrong: scheduling, preemption, parallelism, routing.

Each test carries the number of the report; `test_correctness_table.py` lists all cases and what covers them.
"""

import numpy as np
import pytest
from scenario_text import scenario
from served import ASYNC, OFFLINE, SYNC, constant, milliseconds, serve

from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.spec.result import COMPLETED, REJECTED

LONG_PROMPTS = (
    *("workload.arrivals={process: constant, rate: 50}", "workload.input=800", "workload.output=60"),
    *("engine.max_model_len=1024", "engine.num_gpu_blocks=90", "engine.max_num_batched_tokens=128"),
    *("engine.max_num_seqs=16", "workload.num_requests=12"),
)
"""Prompts of 50 blocks that go in chunks of 8 and a pool of 89: one fits, two do not."""


NO_CACHE = "engine.enable_prefix_caching=false"


# Over-admission


def test_9718_a_long_prompt_is_let_in_when_all_of_it_fits() -> None:
    """dynamo#9718 (PR #9721, #10439), vllm#18115, PR#21809: a prompt was admitted when its next chunk fitted, and
    running work was evicted, over and over. With the gate (vLLM's default) the head waits, nobody is preempted and each
    prompt is computed once; without it the same load thrashes."""
    gated = simulate(constant(*LONG_PROMPTS, NO_CACHE))
    thrashing = simulate(constant(*LONG_PROMPTS, NO_CACHE, "engine.scheduler_reserve_full_isl=false"))
    assert gated.requests["num_preemptions"].sum() == 0
    assert gated.steps["prefill_tokens"].sum() == 12 * 800
    assert thrashing.requests["num_preemptions"].sum() > 100
    assert thrashing.steps["prefill_tokens"].sum() > 5 * 12 * 800
    assert (gated.requests["status"] == COMPLETED).all()
    assert (thrashing.requests["status"] == COMPLETED).all()


@pytest.mark.parametrize("gate", ["true", "false"])
def test_9718_a_step_that_preempts_admits_nobody(gate: str) -> None:
    """The admission itself never evicts running work: where a step preempts, no more requests run after it than before
    (vLLM's rule 12; long prompts let in step after step may still overcommit, as in vLLM)."""
    overrides = (f"engine.scheduler_reserve_full_isl={gate}", "run.resolution=steps", SYNC)
    longer = ("workload.input=400", "workload.output=150")
    steps = simulate(constant(*LONG_PROMPTS, *longer, *overrides)).steps
    preempting = np.flatnonzero(steps["preemptions"])
    assert len(preempting) > 3
    assert np.all(steps["running"][preempting] <= steps["running"][preempting - 1] - steps["preemptions"][preempting])


def test_9718_a_blocked_head_waits_and_so_do_those_behind_it() -> None:
    """Strict head of line: the third prompt would fit beside the first, but the second is before it."""
    pool = ("engine.max_model_len=128", "engine.num_gpu_blocks=9")
    result = serve([(0, 64, 20), (10, 100, 1), (20, 10, 1)], SYNC, *pool)
    assert milliseconds(result, "scheduled") == [0, 200, 200]


def test_9718_a_prompt_larger_than_the_pool_is_rejected() -> None:
    """It would block the queue for ever (vLLM's rule 36). vLLM refuses a pool below `max_model_len` at start-up, and a
    prompt that leaves no room in it at the door; so do we, and those behind it are served."""
    with pytest.raises(ScenarioError, match="does not fit"):
        constant("engine.max_model_len=129", "engine.num_gpu_blocks=9")
    result = serve([(0, 128, 1), (0, 127, 9)], "engine.max_model_len=128", "engine.num_gpu_blocks=9")
    assert result.requests["status"].tolist() == [REJECTED, COMPLETED]
    assert result.requests["output_len"].tolist() == [0, 1]


def test_1057_a_run_that_gets_nowhere_says_so() -> None:
    """inference-sim#1057: preempted again and again, 858 of 5,000 finished, and nothing said so. Two prompts of
    63 blocks go in chunks of 2 blocks into a pool of 65, nothing is cached and nothing tests the whole prompt: the
    first takes the blocks of the second, which is let in again and loses them again, before any token has come of it.
    Such preemptions are counted and printed; with vLLM's default gate there are none (a law of tests/audit.py)."""
    chunks = ("engine.max_num_batched_tokens=64", "engine.max_num_seqs=8", "engine.long_prefill_token_threshold=32")
    pool = ("engine.max_model_len=1024", "engine.num_gpu_blocks=66", NO_CACHE)
    for gate, thrashes in (("false", True), ("true", False)):
        result = serve([(0, 1000, 2)] * 2, *chunks, *pool, f"engine.scheduler_reserve_full_isl={gate}")
        summary = summarize(result)
        assert (result.requests["status"] == COMPLETED).all()
        assert (summary["num_thrashings"] > 1) == thrashes
        assert ("without progress" in benchmark_table(summary)) == thrashes


# Order


def test_12884_decodes_go_on_beside_a_long_prompt() -> None:
    """dynamo#12884, aisimulate#120: SGLang's prefill-first stalls decoding, and a simulator mixed the two policies up.
    Under `vllm_v1` a decode gets its token in every step of a long prefill: one request without a gap, the other
    without its first token for as long. Under `prefill_first` its tokens stop for the five steps of the prompt."""
    requests, limits = [(0, 10, 10), (15, 250, 1)], ("engine.max_num_batched_tokens=51", "engine.max_num_seqs=4")
    mixed = serve(requests, SYNC, *limits)
    assert milliseconds(mixed, "finish")[0] == 100
    assert milliseconds(mixed, "first_token")[1] == 70
    prompts_first = serve(requests, SYNC, *limits, "engine.scheduler=prefill_first")
    assert milliseconds(prompts_first, "finish")[0] == 150
    assert milliseconds(prompts_first, "first_token")[1] == 70
    assert prompts_first.gaps["step_before"].tolist() == [1]
    assert prompts_first.gaps["step_after"].tolist() == [7]


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_first_come_first_served_and_the_preempted_first_of_all(mode: str) -> None:
    """Vidur, TokenSim: prefill and decode never mixed, a queue popped from the wrong end. Requests start in the order
    in which they came; a preempted one goes back to the front, before one that has waited since and would fit."""
    pool = ("engine.max_model_len=128", "engine.num_gpu_blocks=9", "engine.max_num_seqs=8", "run.resolution=steps")
    result = serve([(0, 32, 32), (1, 32, 32), (2, 32, 32), (250, 32, 4)], mode, *pool)
    assert result.requests["num_preemptions"].tolist() == [0, 0, 1, 0]
    assert result.requests["scheduled"].argsort(kind="stable").tolist() == [0, 1, 2, 3]
    assert milliseconds(result, "scheduled")[3] >= milliseconds(result, "finish")[0]
    resumed = result.gaps["step_after"][result.gaps["request"] == 2]
    assert result.requests["first_step"][3] >= resumed[0]


@pytest.mark.parametrize("seed", range(3))
def test_requests_of_one_priority_start_in_order_whatever_the_pool(seed: int) -> None:
    load = ("workload.arrivals.rate=40", "workload.output={distribution: uniform, min: 1, max: 200}", f"seed={seed}")
    pool = ("engine.max_model_len=512", "engine.num_gpu_blocks=60", "engine.max_num_seqs=20")
    requests = simulate(constant(*load, *pool, "workload.num_requests=200")).requests
    assert requests["num_preemptions"].sum() > 10
    assert np.all(np.diff(requests["scheduled"]) >= 0)


def test_preemption_frees_what_the_victim_alone_holds() -> None:
    """LLMServingSim (change log): preemption freed nothing. Three requests share a prefix of 2 blocks, and have 2 own
    ones each, of 8, when all three need another. The last is preempted, which frees its 2 but not the prefix, and the
    others take one each."""
    load = ("workload.shared_prefix={groups: 1, length: 32}", "workload.input=64", OFFLINE, "workload.num_requests=3")
    pool = ("engine.max_model_len=128", "engine.num_gpu_blocks=9", "engine.max_num_seqs=8", "run.resolution=steps")
    steps = simulate(constant(*load, *pool, "workload.output=10", SYNC)).steps
    assert steps["free_blocks"][0] == 8 - 2 - 3 * 2
    step = int(np.flatnonzero(steps["preemptions"])[0])
    assert steps["free_blocks"][step] == steps["free_blocks"][step - 1] + 2 - 2
    assert steps["running"][step] == 2


# Parallelism


@pytest.mark.parametrize(
    "cut",
    [
        *((f"cluster.tensor_parallel={ranks}",) for ranks in (1, 2, 4, 8)),
        *((f"cluster.pipeline_parallel={stages}",) for stages in (2, 3, 8)),
        ("cluster.pipeline_parallel=2", "cluster.tensor_parallel=4"),
    ],
)
def test_62_every_request_completes_once_however_the_model_is_cut(cut: tuple[str, ...]) -> None:
    """LLMServingSim#62, #64, #55, #61, #65, #66, #68: double completions, and runs that hung. Tokens are those of one
    GPU; what is not modelled yet is refused."""
    load = ("workload.num_requests=50", "workload.arrivals.rate=50", "cluster.replicas=2")
    result = simulate(scenario(*load, *cut))
    alone = simulate(scenario(*load))
    assert (result.requests["status"] == COMPLETED).all()
    np.testing.assert_array_equal(result.requests["output_len"], alone.requests["output_len"])
    tokens = result.steps["prefill_tokens"].sum() + (result.steps["decodes"] * result.steps["steps"]).sum()
    assert tokens == (result.requests["input_len"] + result.requests["output_len"] - 1).sum()


def test_62_data_parallelism_inside_an_engine_is_refused() -> None:
    with pytest.raises(ScenarioError, match="not modelled yet"):
        parse_scenario(scenario().to_yaml(), ["cluster.data_parallel=2"])


# Routing


def test_507_a_burst_is_spread_by_what_was_just_sent() -> None:
    """inference-sim#507, #1077: a router with stale state piled a burst onto one replica. The count of requests under
    way includes those of the very same instant."""
    result = simulate(
        constant(OFFLINE, "workload.num_requests=12", "cluster.replicas=3", "cluster.router=least_requests")
    )
    assert np.bincount(result.requests["replica"]).tolist() == [4, 4, 4]


def test_507_a_router_knows_no_more_than_has_happened() -> None:
    """And it knows nothing of the future: a replica whose only request ends at this tick still has it."""
    fleet = ("cluster.replicas=2", "cluster.router=least_requests", SYNC)
    ends_at_20 = (0, 10, 2)
    assert serve([ends_at_20, (1, 10, 9), (20, 10, 1), (20.001, 10, 1)], *fleet).requests["replica"].tolist()[2:] == [
        0,
        1,
    ]
    assert serve([ends_at_20, (1, 10, 9), (20.001, 10, 1)], *fleet).requests["replica"].tolist()[2:] == [0]
    assert serve([(0, 10, 9), (1, 10, 2), (20, 10, 1)], *fleet).requests["replica"].tolist()[2:] == [0]
    assert serve([(0, 10, 9), (1, 10, 2), (21.001, 10, 1)], *fleet).requests["replica"].tolist()[2:] == [1]
