"""What steps cost that verify drafts, and what a drafter costs beside them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_text import scenario
from test_speculation import speculating

from simserve.cost import build_step_cost, memory_ledger
from simserve.cost.build import modelled_step_cost
from simserve.cost.drafted import Batch
from simserve.cost.explain import explain_step
from simserve.cost.launch import GraphMode
from simserve.cost.passes import PassTime
from simserve.cost.speculation import SpeculativeCost
from simserve.cost.verification import VerificationGraphs
from simserve.simulation import simulate
from simserve.spec.ticks import to_seconds


def cost_of(*overrides: str) -> SpeculativeCost:
    cost = build_step_cost(scenario(*overrides))
    assert isinstance(cost, SpeculativeCost)
    return cost


def verifying(num_requests: int, context: int, query_len: int) -> tuple[list[tuple[int, int]], int, int, int]:
    """A step in which so many requests verify, all after the same context."""
    chunks = [(query_len, context)] * num_requests
    return chunks, num_requests, num_requests * (context + query_len), num_requests


def gpu_time(cost: SpeculativeCost, num_requests: int, context: int = 500, query_len: int = 4) -> float:
    return to_seconds(cost.step(*verifying(num_requests, context, query_len)).gpu)


# -- verification ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "rtx-4090-24gb"])
@pytest.mark.parametrize(
    "settings_", [(), ("engine.enforce_eager=true",), ("engine.cuda_graph.mode=full_decode_only",)]
)
@pytest.mark.parametrize("mode", ["true", "false"])
def test_without_drafts_a_step_costs_what_it_costs_without_speculation(
    gpu: str, settings_: tuple[str, ...], mode: str
) -> None:
    question = scenario(
        f"cluster.gpu={gpu}", "engine.max_model_len=2048", f"engine.async_scheduling={mode}", *settings_
    )
    plain, engine = modelled_step_cost(question), question.engine
    sizes, seqs = engine.cuda_graph.capture_sizes, engine.max_num_seqs
    cost = SpeculativeCost(plain, VerificationGraphs(engine.cuda_graph.mode, sizes, seqs, 1), None)
    assert cost.update == plain.update
    for count, context in ((1, 1), (7, 300), (256, 2000), (600, 100)):
        decodes = [(1, context - 1)] * count
        assert cost.ticks(decodes, count, count * context, count) == plain.ticks([], count, count * context, count)
        prompts = [(300, 0), (40, 512)]
        ours = cost.ticks([*decodes, *prompts], count, count * context, count + 2)
        assert ours == plain.ticks(prompts, count, count * context, count + 2)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3000)), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=3),
    st.integers(0, 39),
)
@settings(max_examples=100, deadline=None)
def test_one_draft_more_never_makes_a_step_shorter(
    verified: list[tuple[int, int]], prompts: list[tuple[int, int]], which: int
) -> None:
    """Beyond what a graph of the next size saves, of which there is none in an eager engine."""
    which %= len(verified)
    more = [(new + (row == which), history) for row, (new, history) in enumerate(verified)]
    short, long = (Batch.of(each, prompts) for each in (verified, more))
    cost = EAGER
    for batch, other in ((short, long),):
        assert cost._attention(other)[0] >= cost._attention(batch)[0]
    count = len(verified)
    assert cost.step([*more, *prompts], count, 0, 0).gpu >= cost.step([*verified, *prompts], count, 0, 0).gpu


EAGER = cost_of(speculating(count=5), "engine.enforce_eager=true", "cost.level=datasheet")


def test_verifying_is_free_while_weights_are_what_is_read() -> None:
    """One user, four tokens in place of one: the model reads the same weights and the same KV."""
    cost = cost_of(speculating("ngram"))
    one, four = (gpu_time(cost, 1, query_len=query_len) for query_len in (1, 4))
    assert one < four < 1.1 * one
    busy_one, busy_four = (gpu_time(cost, 256, query_len=query_len) for query_len in (1, 4))
    assert busy_four > 1.8 * busy_one


def test_a_mixture_reads_more_experts_to_verify() -> None:
    dense, mixture = (cost_of(speculating("ngram"), *more) for more in ((), ("model=qwen3-30b-a3b",)))
    growth = [gpu_time(cost, 8, query_len=4) / gpu_time(cost, 8, query_len=1) for cost in (dense, mixture)]
    assert growth[0] < 1.1
    assert growth[1] > 1.3


def test_latent_attention_pays_for_each_query() -> None:
    """128 heads on one latent are bound by FLOPs: four queries cost about four times one. GQA reads its KV once."""
    shares = []
    for model in ("llama-3.1-8b", "deepseek-v3"):
        cost = cost_of(speculating("ngram"), f"model={model}", "cost.level=datasheet")
        one, four = (cost._attention(Batch.of([(query_len, 60_000)] * 4, ()))[0] for query_len in (1, 4))
        shares.append(four / one)
    assert shares[0] < 1.1
    assert shares[1] > 3.5


def test_uniform_steps_take_full_graphs_of_multiples() -> None:
    """Sizes 1, 2, 4, 8, 16, ... of which decodes of three tokens get 3, 6, 9, 18, 24, ..."""
    graphs = VerificationGraphs("full_and_piecewise", (1, 2, 4, 8, 16, 24, 32), 64, 3)
    five = Batch.of([(3, 100)] * 5, ())
    assert graphs.of_step(five) == (GraphMode.FULL, 18)
    assert graphs.of_step(Batch.of([(3, 100)] * 4 + [(2, 100)], ())) == (GraphMode.PIECEWISE, 16)
    assert graphs.of_step(Batch.of([(3, 100)] * 4, [(5, 0)])) == (GraphMode.PIECEWISE, 24)
    assert graphs.of_step(Batch.of([(3, 100)] * 11, ())) == (GraphMode.NONE, 33)
    assert graphs.of_drafts(5) == (GraphMode.FULL, 8)
    assert graphs.of_drafts(33) == (GraphMode.NONE, 33)


def test_capture_sizes_hold_whole_verifications() -> None:
    """Three seats, two drafts: up to 2 x 3 x 3 tokens, with 3, 6 and 9 among them (vLLM 0.32, config/vllm.py)."""
    engine = scenario("engine.max_num_seqs=3", speculating(count=2)).engine
    assert engine.cuda_graph.capture_sizes == (1, 2, 3, 4, 6, 8, 9, 16)


# -- drafters ----------------------------------------------------------------------------------------------------------


def test_each_draft_is_a_pass_of_the_drafter() -> None:
    """EAGLE on Llama-3.1-8B reads 218 M parameters of a layer, 34 M that join its inputs and 525 M of lm_head."""
    times = [gpu_time(cost_of(speculating(count=count), "cost.level=datasheet"), 1) for count in (1, 2, 3)]
    steps = np.diff(times)
    assert steps[0] == pytest.approx(steps[1], rel=1e-3)
    read = 2 * (218.1e6 + 33.6e6 + 525.3e6)
    assert read / 3.35e12 < steps[0] < 1.5 * read / 3.35e12
    small = gpu_time(cost_of(speculating(count=2, draft_vocab_size=32000), "cost.level=datasheet"), 1)
    assert small < times[1] - 2 * 0.7 * 2 * 394e6 / 3.35e12


def test_a_draft_model_reads_the_prompts_too() -> None:
    """A prompt of 2,047 tokens, of which the small model sees one more: its time comes on top of the large one's."""
    plain = modelled_step_cost(scenario()).step([(2047, 0)], 0, 0, 1).gpu
    small = modelled_step_cost(scenario("model=llama-3.2-1b")).step([(2048, 0)], 0, 0, 1).gpu
    drafted = cost_of(speculating("draft_model", count=1)).step([(2047, 0)], 0, 0, 1).gpu
    assert drafted - plain == pytest.approx(small, rel=0.02)


def test_a_draft_model_without_graphs_is_launched_kernel_by_kernel() -> None:
    eager, graphs = (cost_of(speculating("draft_model", enforce_eager=each)) for each in ("null", "false"))
    steps = [cost.step(*verifying(1, 500, 4)) for cost in (eager, graphs)]
    assert steps[0].gpu == pytest.approx(steps[1].gpu, rel=0.03)
    assert steps[0].cpu > 1.5 * steps[1].cpu


def test_a_prediction_layer_of_a_mixture_is_a_mixture() -> None:
    mtp, eagle = (
        cost_of("model=qwen3-30b-a3b", speculating(method, count=1), "cost.level=datasheet")
        for method in ("mtp", "eagle")
    )
    assert gpu_time(mtp, 64) > gpu_time(eagle, 64)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=12), st.integers(1, 11))
def test_passes_follow_each_other_as_their_launches_do(launches: list[tuple[int, int]], cut: int) -> None:
    """(CPU, GPU) ticks of launches in order; a kernel starts when it is launched and the one before has ended."""

    def end(some: list[tuple[int, int]]) -> PassTime:
        cpu = gpu = done = 0
        for launch, kernel in some:
            cpu += launch
            done = max(done, cpu) + kernel
            gpu += kernel
        return PassTime(cpu, gpu, done)

    cut = min(cut, len(launches) - 1)
    assert end(launches[:cut]).then(end(launches[cut:])) == end(launches)


def test_look_ups_cost_the_host_by_the_length_of_the_text() -> None:
    free, slow = (cost_of(speculating("ngram", lookup_time_per_token=each)) for each in ("0 s", "1 us"))
    step = verifying(4, 996, 4)
    assert to_seconds(slow.step(*step).latency - free.step(*step).latency) == pytest.approx(4 * 1000e-6)
    assert slow.step(*step).gpu == free.step(*step).gpu


# -- a step laid open --------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["ngram", "draft_model", "eagle", "mtp"]),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3000)), max_size=10),
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_kernels_add_up_to_the_step(
    method: str, verified: list[tuple[int, int]], prompts: list[tuple[int, int]]
) -> None:
    for gpu in ("h100-sxm-80gb", "rtx-4090-24gb"):
        cost = COSTS[method, gpu]
        chunks = [*verified, *prompts] or [(1, 0)]
        kernels = list(cost.kernels(chunks, len(verified)))
        assert sum(kernel.ticks for kernel in kernels) == cost.step(chunks, len(verified), 0, 0).gpu
        assert any(kernel.group == "drafts" for kernel in kernels) == (method != "ngram")


COSTS = {
    (method, gpu): cost_of(speculating(method), f"cluster.gpu={gpu}")
    for method in ("ngram", "draft_model", "eagle", "mtp")
    for gpu in ("h100-sxm-80gb", "rtx-4090-24gb")
}


def test_a_step_is_shown_with_all_its_drafts() -> None:
    question = scenario(speculating(count=2))
    shown = explain_step(question, [], 10, 5000, 10)
    assert (shown["tokens"], shown["padded_tokens"], shown["graph"]) == (30, 33, "full")
    operators: Any = shown["operators"]
    assert sum(each["time"] for each in operators) == pytest.approx(shown["gpu_time"])
    counts = {each["name"]: each["count"] for each in operators}
    assert (counts["lm_head"], counts["draft_lm_head"], counts["qkv"], counts["draft_qkv"]) == (1, 2, 32, 2)


# -- a run -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ngram", "draft_model", "eagle", "mtp"])
def test_groups_of_operators_add_up_to_the_time_of_the_gpu(method: str) -> None:
    result = simulate(scenario(speculating(method), "workload.num_requests=30", "workload.arrivals.rate=30"))
    breakdown: Any = result.meta["step_time_breakdown"]
    gpu = sum(time for group, time in breakdown.items() if group != "host")
    assert gpu == pytest.approx(result.steps["gpu_time"].sum())
    assert ("drafts" in breakdown) == (method != "ngram")


# -- memory ------------------------------------------------------------------------------------------------------------


def test_a_drafter_takes_weights_and_adds_to_every_block() -> None:
    """EAGLE: a layer of 32 of Llama-3.1-8B and 2 x 4096 x 4096 that join its inputs. A draft model: all of itself."""
    plain, eagle, small = (
        memory_ledger(scenario(*more)) for more in ((), (speculating(),), (speculating("draft_model"),))
    )
    alone = memory_ledger(scenario("model=llama-3.2-1b"))
    layer = 2 * (218_112_000 + 2 * 4096**2)
    assert eagle.weights - plain.weights == pytest.approx(layer, rel=0.15)
    assert eagle.block_bytes == plain.block_bytes * 33 // 32
    assert small.weights - plain.weights == alone.weights
    assert eagle.cuda_graphs > plain.cuda_graphs
    assert small.block_bytes == plain.block_bytes + alone.block_bytes
    assert plain.num_gpu_blocks > eagle.num_gpu_blocks > small.num_gpu_blocks
    looked_up = memory_ledger(scenario(speculating("ngram")))
    assert (looked_up.weights, looked_up.block_bytes) == (plain.weights, plain.block_bytes)
