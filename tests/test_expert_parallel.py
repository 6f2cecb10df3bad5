"""Experts spread whole over GPUs: what each computes, what travels, and which of them the step waits for."""

from itertools import pairwise

import numpy as np
import pytest
from scenario_text import scenario

from simserve.cost import memory_ledger
from simserve.cost.explain import operators_of_step
from simserve.cost.operators import Routing
from simserve.report.summary import summarize
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError

QWEN = ("model=qwen3-30b-a3b", "cluster.tensor_parallel=4")


def times(*overrides: str, decodes: int, level: str = "datasheet") -> dict[str, float]:
    """Seconds of each operator of a step of decodes."""
    question = scenario(*QWEN, f"cost.level={level}", *overrides)
    operators = operators_of_step(question, [], decodes, decodes * 512, decodes)
    return {operator.name: operator.time for operator in operators}


@pytest.mark.parametrize(("experts", "per_token", "spread"), [(128, 8, 4), (128, 8, 8), (8, 2, 8), (256, 8, 8)])
@pytest.mark.parametrize("tokens", [1, 8, 64, 1024])
def test_the_busiest_gpu_is_as_busy_as_chance_makes_it(experts: int, per_token: int, spread: int, tokens: int) -> None:
    """Against 300 drawn batches: the expected load of the busiest GPU, within a fifth, never less than the mean."""
    rng = np.random.default_rng(0)
    each = experts // spread
    loads = []
    for _ in range(300):
        chosen = np.argsort(rng.random((tokens, experts)), axis=1)[:, :per_token] // each
        loads.append(np.bincount(chosen.ravel(), minlength=spread).max())
    (rows,) = Routing(experts, per_token, spread).busiest(np.array([float(tokens)]))
    assert rows * per_token / spread == pytest.approx(np.mean(loads), rel=0.2)
    assert rows >= tokens


def test_on_one_gpu_nobody_is_busier() -> None:
    rows = np.arange(1.0, 100.0)
    np.testing.assert_array_equal(Routing(128, 8).busiest(rows), rows)


def test_imbalance_multiplies_the_busiest_load_up_to_everything() -> None:
    rows = np.array([10_000.0])
    plain, skewed, worst = (Routing(128, 8, 4, factor).busiest(rows)[0] for factor in (1.0, 2.0, 100.0))
    assert skewed == pytest.approx(2 * plain)
    assert worst == pytest.approx(4 * rows[0])  # all of 8 choices fall on one of 4 GPUs


@pytest.mark.parametrize("level", ["datasheet", "kernels"])
def test_a_full_batch_costs_what_it_costs_cut_and_a_single_token_more(level: str) -> None:
    """Many tokens touch all experts: the same weights are read either way. One token has two of its eight experts on an
    average GPU, whole, and more on the busiest.
    """
    spread = "cluster.expert_parallel=true"
    names = ("experts_gate_up", "experts_down") if level == "datasheet" else ("experts",)
    one_cut, one_spread = (sum(times(*how, decodes=1, level=level)[name] for name in names) for how in ((), (spread,)))
    assert 1 < one_spread / one_cut < 4
    if level == "datasheet":
        cut, whole = (sum(times(*how, decodes=256)[name] for name in names) for how in ((), (spread,)))
        assert whole == pytest.approx(cut, rel=0.15)


def test_more_imbalance_takes_longer() -> None:
    steps = [
        sum(times(f"cluster.expert_parallel={{imbalance: {factor}}}", decodes=2048).values()) for factor in (1, 1.5, 3)
    ]
    assert all(less < more for less, more in pairwise(steps))


def test_the_exchange_takes_the_place_of_the_sum_after_the_experts() -> None:
    summed = times("cluster.expert_parallel=true", decodes=1024)
    sent = times("cluster.expert_parallel={communication: all_to_all}", decodes=1024)
    assert "dispatch" not in summed
    assert "mlp_all_reduce" not in sent
    assert "attention_all_reduce" in sent
    assert sent["dispatch"] + sent["combine"] < 2 * summed["mlp_all_reduce"]


def test_a_shared_expert_is_still_summed() -> None:
    question = scenario("model=deepseek-v3", "cluster.gpu=h200-sxm-141gb", "cluster.tensor_parallel=8",
                        "cluster.expert_parallel={communication: all_to_all}", "engine.max_model_len=8192")  # fmt: skip
    names = {operator.name for operator in operators_of_step(question, [], 64, 65536, 64)}
    assert {"dispatch", "combine", "mlp_all_reduce"} <= names


def test_the_memory_is_the_same() -> None:
    cut, spread = (memory_ledger(scenario(*QWEN, *how)) for how in ((), ("cluster.expert_parallel=true",)))
    assert cut.weights == spread.weights


PEERS = ("model=qwen3-30b-a3b", "cluster.replicas=2", "cluster.expert_parallel={data_parallel: 2}")


def test_replicas_that_share_experts_hold_and_read_half_of_them() -> None:
    """Each serves the tokens of both, which are gathered and scattered; 128 tokens touch all experts anyway."""
    alone, shared = (
        {each.name: each for each in operators_of_step(scenario(*how, "cost.level=kernels"), [], 128, 65536, 128)}
        for how in (PEERS[:2], PEERS)
    )
    assert shared["experts"].time == pytest.approx(alone["experts"].time / 2, rel=0.1)
    assert shared["experts"].flops == pytest.approx(alone["experts"].flops, rel=0.2)
    assert {"experts_all_gather", "experts_reduce_scatter"} == shared.keys() - alone.keys()
    ledgers = [memory_ledger(scenario(*how)) for how in (PEERS[:2], PEERS)]
    model = scenario(*PEERS).model
    ((mixture, layers),) = model.mixtures.items()
    half = layers * mixture.num_experts * 3 * model.hidden_size * mixture.width
    assert ledgers[0].weights - ledgers[1].weights == half


def test_a_run_reports_the_exchange() -> None:
    run = simulate(scenario(*QWEN, "cluster.expert_parallel={communication: all_to_all}", "workload.num_requests=50"))
    assert summarize(run)["completed"] == 50
    assert summarize(run)["step_time_breakdown"]["communication"] > 0


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (("cluster.expert_parallel=true", "cluster.tensor_parallel=2"), "llama-3.1-8b has no experts"),
        (("model=qwen3-30b-a3b", "cluster.expert_parallel=true"), "GPUs of tensor_parallel, which is 1"),
        ((*QWEN, "cluster.expert_parallel={imbalance: 0.5}"), "imbalance"),
        ((PEERS[0], PEERS[2]), "1 replicas are not groups of 2"),
        ((*PEERS, "cluster.tensor_parallel=2"), "with tensor_parallel yet"),
        ((*PEERS, "cluster.expert_parallel.communication=all_to_all"), "with all_to_all yet"),
    ],
)
def test_what_cannot_be_is_refused(overrides: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        scenario(*overrides)
