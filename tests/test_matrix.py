"""Where mechanisms meet: every pair of them in one scenario keeps the laws, or is refused in so many words."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from simserve.report.summary import summarize
from simserve.simulation import build_simulation, simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.spec.result import CANCELLED, COMPLETED, REJECTED, STATUSES, TIMED_OUT, Result
from simserve.spec.scenario import Scenario

QUESTION = """
model: qwen3-30b-a3b
workload:
  arrivals: {process: poisson, rate: 40}
  input: {distribution: uniform, min: 20, max: 300}
  output: {distribution: uniform, min: 1, max: 120}
  num_requests: 60
cluster: {gpu: h100-sxm-80gb, tensor_parallel: 2, replicas: 2, router: least_requests}
engine: {max_model_len: 1024, max_num_seqs: 16}
"""

TIGHT = "engine.num_gpu_blocks=80"
MECHANISMS = {
    "n-grams": ("engine.speculative={method: ngram, num_speculative_tokens: 3, acceptance: 0.6, match_rate: 0.7}",),
    "mtp": ("engine.speculative={method: mtp, num_speculative_tokens: 2, acceptance: [0.8, 0.5]}",),
    "prefix cache": ("workload.shared_prefix={groups: 2, length: 100, adds: true}",),
    "chats": ("workload.sessions={turns: 3, think_time: 10 ms}", "workload.input=30", "workload.output=60"),
    "no prefix cache": ("engine.enable_prefix_caching=false",),
    "no graphs": ("engine.enforce_eager=true",),
    "piecewise graphs": ("engine.cuda_graph.mode=piecewise",),
    "small chunks": ("engine.max_num_batched_tokens=64",),
    "whole prompts": ("engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=1024"),
    "recompute": (TIGHT,),
    "swap": (TIGHT, "engine.preemption=swap"),
    "stages": ("cluster.pipeline_parallel=2",),
    "pools": (
        "cluster.pools={prefill: {replicas: 1}, decode: {replicas: 2}}",
        "cluster.kv_link={bandwidth: 10 GB/s, latency: 1 ms}",
    ),
    "timeouts": ("workload.client={timeout: 500 ms, retries: 2, backoff: {initial: 50 ms, max: 200 ms}}",),
    "synchronous": ("engine.async_scheduling=false",),
    "priorities": (
        "engine.scheduling_policy=priority",
        "workload.classes=[{name: a, share: 0.5}, {name: b, share: 0.5, priority: 2}]",
    ),
    "rate limit": ("cluster.rate_limit={requests_per_minute: 1200, burst: 1 s}",),
    "queue limit": ("engine.max_num_queued_reqs=3",),
    "closed loop": ("workload.arrivals={process: closed_loop, users: 12}",),
    "prefill first": ("engine.scheduler=prefill_first",),
    "static batches": ("engine.scheduler=static",),
    "contiguous KV": ("engine.kv_allocation=contiguous",),
    "no KV cache": ("engine.kv_allocation=none",),
    "spread experts": ("cluster.expert_parallel=true",),
    "shared experts": ("cluster.tensor_parallel=1", "cluster.expert_parallel={data_parallel: 2}"),
    "host sync": ("engine.host_sync=layer", "engine.async_scheduling=false", "engine.enforce_eager=true"),
    "fused kernels": ("engine.pass_config={fuse_allreduce_rms: true, fuse_attn_quant: true}",),
    "fp8 KV": ("model={config: qwen3-30b-a3b, weight_dtype: fp8, kv_dtype: fp8}",),
}
"""What can be switched on, by name, and the keys that do it."""


REFUSED = {
    "swap": {"n-grams", "mtp", "stages", "pools", "prefill first", "static batches", "contiguous KV"},
    "prefill first": {"n-grams", "mtp", "stages", "pools"},
    "static batches": {"n-grams", "mtp", "stages", "pools", "priorities"},
    "contiguous KV": {"n-grams", "mtp", "pools"},
    "host sync": {"n-grams", "mtp", "stages", "piecewise graphs", "fused kernels"},
    "shared experts": {"n-grams", "mtp", "swap", "stages", "pools", "prefill first", "static batches", "host sync"},
    "no KV cache": {
        *("n-grams", "mtp", "swap", "stages", "pools", "prefill first", "static batches", "priorities"),
        *("small chunks", "shared experts"),
    },
    "queue limit": {"pools"},
    "no graphs": {"piecewise graphs", "fused kernels"},
    "chats": {"closed loop"},
}
"""Pairs that are refused: extensions that only go with vLLM's own scheduler on one GPU, and contradictions."""


def is_refused(one: str, other: str) -> bool:
    """Whether a scenario with both is an error."""
    return other in REFUSED.get(one, ()) or one in REFUSED.get(other, ())


PAIRS = [pair for pair in combinations(MECHANISMS, 2) if set(pair) != {"contiguous KV", "no KV cache"}]
"""But for two values of one key."""


def asked(*names: str) -> Scenario:
    """The question with some mechanisms switched on."""
    return parse_scenario(QUESTION, [key for name in names for key in MECHANISMS[name]])


def answered(question: Scenario) -> Result:
    """The records of a run whose replicas are empty in the end."""
    simulation = build_simulation(question)
    result = simulation.run()
    for replica in simulation.replicas:
        pool = replica.scheduler.ledger.pool
        assert not replica.scheduler.has_requests
        assert pool.num_free == pool.num_blocks
    return result


def assert_laws(result: Result) -> None:
    """One status each, whole answers, causes before effects, tokens that add up."""
    requests, question = result.requests, result.scenario
    status = requests["status"]
    assert sum(np.count_nonzero(status == index) for index in range(len(STATUSES))) == len(status)
    done = status == COMPLETED
    assert np.isin(status, [COMPLETED, REJECTED, TIMED_OUT, CANCELLED]).all()
    assert done.any()
    times = [requests[name][done] for name in ("arrival", "engine_arrival", "scheduled", "first_token", "finish")]
    assert all(np.all(earlier <= later) for earlier, later in pairwise(times))
    assert np.all(requests["cached_len"][done] <= requests["input_len"][done])
    assert (requests["output_len"][done] >= 1).all()
    if question.workload.sessions is None and question.workload.client is None:
        summary = summarize(result)
        assert summary["completed"] == np.count_nonzero(done)
        assert summary["total_output_tokens"] == requests["output_len"][done].sum()


def assert_equal(runs: Result, steps: Result) -> None:
    """Every column of requests, attempts and gaps."""
    for table in ("requests", "attempts", "gaps"):
        left, right = getattr(runs, table), getattr(steps, table)
        assert left.keys() == right.keys()
        for name in right:
            np.testing.assert_array_equal(left[name], right[name], err_msg=f"{table}: {name}")


@pytest.mark.parametrize("name", MECHANISMS)
def test_each_keeps_the_laws(name: str) -> None:
    assert_laws(answered(asked(name)))


ALONE = [name for name in MECHANISMS if name != "shared experts"]


@pytest.mark.parametrize("name", ALONE)
def test_each_on_a_single_replica_is_the_same_at_either_resolution(name: str) -> None:
    """A replica that nobody else could disturb lets arrivals pass without sleeping."""
    question = asked(name).with_overrides(["cluster.replicas=1"])
    runs = answered(question)
    assert_laws(runs)
    assert_equal(runs, answered(question.with_overrides(["run.resolution=steps"])))


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_process_answers_twice_alike(name: str) -> None:
    """What is kept from run to run, such as costs, remembers nothing of the run before."""
    question = asked(name)
    assert summarize(simulate(question)) == summarize(simulate(question))


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if not is_refused(*pair)], ids=" x ".join)
def test_each_pair_keeps_the_laws_at_either_resolution(pair: tuple[str, str]) -> None:
    question = asked(*pair)
    runs = answered(question)
    assert_laws(runs)
    assert_equal(runs, answered(question.with_overrides(["run.resolution=steps"])))


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if is_refused(*pair)], ids=" x ".join)
def test_what_cannot_meet_is_refused_by_the_key_that_stands_in_the_way(pair: tuple[str, str]) -> None:
    keys = [override.split("=")[0] for name in pair for override in MECHANISMS[name]]
    with pytest.raises(ScenarioError) as error:
        asked(*pair)
    assert any(key.rsplit(".", maxsplit=1)[-1] in str(error.value) for key in keys)
