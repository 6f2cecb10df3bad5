"""Operators one by one: what they move and compute, what binds them, and the curves their times are read from."""

import dataclasses
from itertools import product
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.cost.attention import Attention, AttentionTime
from simserve.cost.build import build_forward
from simserve.cost.collectives import CollectiveTime, all_gather, all_reduce
from simserve.cost.curve import FloatArray, mfu_curve
from simserve.cost.device import Device
from simserve.cost.launch import GraphMode, Launch, graph_policy, launch_totals, ticks_of, totals_of_one
from simserve.cost.operators import Elementwise, ExpertLinear, Linear, Routing, kernel_over, whole_tiles
from simserve.cost.shape import LogitWork, forward_shape
from simserve.cost.sharding import Sharding, sharding
from simserve.spec.catalogue import find_model
from simserve.spec.gpus import find_gpu
from simserve.spec.hardware import AllReduceSpec
from simserve.spec.ticks import to_seconds, to_ticks

DEVICE = Device(
    gemm_bandwidth={"bf16": 1e12, "fp8": 1e12, "int4": 1e12},
    elementwise_bandwidth=1e12,
    attention_bandwidth=1e12,
    peak_flops={"bf16": 1e14, "fp8": 2e14},
    gemm_mfu={pair: mfu_curve({1: 1.0}) for pair in product(("bf16", "fp8", "int4"), ("bf16", "fp8"))},
    attention_mfu=mfu_curve({1: 1.0}),
    l2_bytes=1e6,
    gemm_floor=2e-6,
    kernel_floor=1e-6,
    decode_floor=3e-6,
    prefill_floor=4e-6,
)


def floats(*numbers: float) -> FloatArray:
    return np.array(numbers, dtype=np.float64)


def test_gemm_takes_the_longest_of_bytes_flops_and_floor() -> None:
    small = Linear("small", 100, 100, weight_bytes=2e4, activation_bytes=2, dtype="bf16", compute="bf16")
    wide = Linear("wide", 4096, 4096, weight_bytes=2 * 4096**2, activation_bytes=2, dtype="bf16", compute="bf16")
    floor, memory, compute = (kernel_over(*each, DEVICE) for each in ((small, 1), (wide, 1), (wide, 4096)))
    assert (floor.bound, floor.ticks) == ("floor", to_ticks(2e-6))
    assert (memory.bound, memory.ticks) == ("memory", to_ticks(2 * 4096**2 / 1e12))
    assert (compute.bound, compute.ticks) == ("compute", to_ticks(2 * 4096**3 / 1e14))


def test_activations_travel_only_as_far_as_l2_is_full() -> None:
    """Elementwise kernels have a third of it to hand their data on."""
    norm = Elementwise("norm", 1000)
    assert kernel_over(norm, 333, DEVICE).bytes == 0
    assert kernel_over(norm, 3000, DEVICE).bytes == pytest.approx(3e6 - 1e6 / 3)


def test_what_stays_in_l2_takes_the_time_of_l2() -> None:
    norm = Elementwise("norm", 1000)
    slow = dataclasses.replace(DEVICE, l2_bytes=1e9, l2_bandwidth=2e12)
    assert kernel_over(norm, 100_000, slow).ticks == to_ticks(1e8 / 2e12)
    assert kernel_over(norm, 1_000_000, slow).ticks == to_ticks((1e9 - 1e9 / 3) / 1e12)
    assert kernel_over(norm, 100_000, dataclasses.replace(slow, l2_bandwidth=np.inf)).ticks == to_ticks(1e-6)


@given(st.integers(1, 5000))
def test_gemms_take_the_time_of_whole_tiles(rows: int) -> None:
    wide = Linear("wide", 4096, 4096, weight_bytes=2 * 4096**2, activation_bytes=2, dtype="bf16", compute="bf16")
    large_l2 = dataclasses.replace(DEVICE, l2_bytes=1e9)
    whole = int(whole_tiles(floats(rows)).item())
    assert rows <= whole <= max(16, 2 * rows)
    assert whole % 128 == 0 or whole in {16, 32, 64}
    assert kernel_over(wide, rows, large_l2).ticks == kernel_over(wide, whole, large_l2).ticks


@pytest.mark.parametrize(("experts", "per_token", "tokens"), [(8, 2, 1), (8, 2, 5), (128, 8, 40), (256, 8, 300)])
def test_touched_experts_are_those_that_uniform_routing_touches(experts: int, per_token: int, tokens: int) -> None:
    routing = Routing(experts, per_token)
    rng = np.random.default_rng(1)
    draws = [
        len({int(e) for _ in range(tokens) for e in rng.choice(experts, per_token, replace=False)}) for _ in range(200)
    ]
    error = 4 * np.std(draws) / np.sqrt(len(draws)) + 1e-9
    (touched,) = routing.touched(floats(tokens))
    assert touched == pytest.approx(np.mean(draws), abs=error)
    assert touched <= min(experts, tokens * per_token) * (1 + 1e-12)


@given(
    st.dictionaries(st.integers(1, 16384), st.floats(0.01, 1.0), min_size=1, max_size=6),
    st.floats(1, 20000),
    st.floats(1, 20000),
)
def test_time_never_falls_with_the_rows(points: dict[int, float], one: float, other: float) -> None:
    """Between points, outside them, and where measured points themselves would make it fall."""
    curve = mfu_curve(points)
    sizes = floats(*sorted((one, other)))
    small, large = sizes / curve(sizes)
    assert small <= large * (1 + 1e-9)
    assert (curve(sizes) > 0).all()
    assert (curve(sizes) <= max(points.values()) * (1 + 1e-12)).all()


def test_mfu_is_read_through_its_points() -> None:
    curve = mfu_curve({64: 0.2, 256: 0.6, 1024: 0.8})
    assert curve(floats(1, 64, 128, 256, 1024, 9000)) == pytest.approx([0.2, 0.2, 0.12**0.5, 0.6, 0.8, 0.8])
    with pytest.raises(ValueError, match="positive"):
        mfu_curve({})


def test_collectives_are_read_through_their_points() -> None:
    spec = AllReduceSpec(times={1024: 4e-6, 4096: 8e-6}, bus_bandwidth=1e9)
    reduce = all_reduce(spec, 4)
    assert reduce(floats(1, 1024, 2048, 4096)) == pytest.approx([4e-6, 4e-6, 4e-6 * 4 / 3, 8e-6])
    assert reduce(floats(4096 + 1000)) == pytest.approx(8e-6 + 1000 * 1.5 / 1e9)
    assert all_gather(spec, 4)(floats(8192)) == pytest.approx(8e-6)


def test_ranks_without_measurements_share_the_link() -> None:
    """inference-sim#1663: TP communication free. A card without measured all-reduces still pays for its link."""
    gpu = find_gpu("mi300x-192gb")
    bare = gpu.model_copy(update={"interconnect": gpu.interconnect.model_copy(update={"all_reduce": {}})})
    reduce = sharding(bare, 8).all_reduce
    assert isinstance(reduce, CollectiveTime)
    assert reduce(floats(1e9)) == pytest.approx(1e9 * 2 * 7 / 8 / gpu.interconnect.bandwidth, rel=1e-3)
    assert sharding(bare, 1).all_reduce is None


@pytest.mark.parametrize(
    ("model", "gpu", "ranks"),
    [("llama-3.1-8b", "h100-sxm-80gb", 2), ("gpt-oss-120b", "b200-sxm-180gb", 1), ("deepseek-v3", "h200-sxm-141gb", 8)],
)
def test_many_row_counts_at_once_take_the_ticks_of_each_alone(model: str, gpu: str, ranks: int) -> None:
    forward = build_forward(find_model(model), find_gpu(gpu), ranks)
    counts = np.arange(1, 1300)
    for operator, ticks in (forward.body_ticks(counts) | forward.head_ticks(counts)).items():
        assert ticks.tolist() == [kernel_over(operator, rows, forward.device).ticks for rows in counts.tolist()]


def test_two_all_reduces_a_layer_and_one_for_the_embedding() -> None:
    forward = build_forward(find_model("llama-3.1-8b"), find_gpu("h100-sxm-80gb"), 2)
    names = [kernel.name for layer in forward.shape.each_layer() for kernel in forward.kernels(layer.after, 8)]
    assert sum("all_reduce" in name for name in names) == 2 * 32
    assert [kernel.name for kernel in forward.kernels(forward.shape.embed, 8)] == ["embedding", "embedding_all_reduce"]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b"])
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_weights_read_by_all_gemms_are_the_weights_of_the_model(model: str, ranks: int) -> None:
    """Every weight but the embedding table, norms and biases is read once by a pass that touches all experts; what
    every GPU holds (router, latents of MLA, copied KV heads) comes on top.
    """
    spec = find_model(model)
    shape = forward_shape(spec, sharding(find_gpu("b200-sxm-180gb"), ranks))
    read = 0.0
    operators = [op for layer in shape.each_layer() for op in (*layer.before, *layer.after)]
    for op in (*operators, *shape.head):
        if isinstance(op, Linear):
            read += op.weight_bytes
        elif isinstance(op, ExpertLinear):
            read += op.weight_bytes * op.routing.experts
    table = 0 if spec.tie_word_embeddings else spec.vocab_size * spec.hidden_size * 2
    share = (spec.weight_bytes - table) / ranks
    assert share * 0.99 < read < share * (1.01 + 0.015 * (ranks - 1))


def test_weights_as_stated_are_all_read() -> None:
    spec = find_model("llama-2-7b").model_copy(update={"given_weight_bytes": 14e9})
    shape = forward_shape(spec, Sharding(1, frozenset({"bf16"})))
    gemms = [op for layer in shape.each_layer() for op in (*layer.before, *layer.after) if isinstance(op, Linear)]
    head = [op for op in shape.head if isinstance(op, Linear)]
    assert sum(op.weight_bytes for op in gemms + head) == pytest.approx(14e9)


@pytest.mark.parametrize(
    ("weights", "computes", "expected"),
    [
        ("fp8", {"bf16", "fp8"}, "fp8"),
        ("fp8", {"bf16"}, "bf16"),
        ("int4", {"bf16", "fp8"}, "bf16"),
        ("nvfp4", {"bf16", "fp8", "nvfp4"}, "nvfp4"),
        ("nvfp4", {"bf16", "fp8"}, "bf16"),
        ("fp16", {"bf16"}, "bf16"),
    ],
)
def test_gemms_compute_in_the_narrowest_format_of_the_gpu(weights: str, computes: set[str], expected: str) -> None:
    assert Sharding(1, frozenset(computes)).compute_dtype(weights, "bf16") == expected


def test_format_without_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="no peak FLOP/s"):
        Sharding(1, frozenset({"fp8"})).compute_dtype("bf16", "bf16")


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 100))
def test_pairs_are_counted_query_by_query(new: int, history: int, window: int) -> None:
    full = Attention(8, 1, 1, 1, 0, None, "bf16")
    assert full.pairs(new, history) == sum(history + i + 1 for i in range(new))
    assert full._replace(window=window).pairs(new, history) == sum(min(window, history + i + 1) for i in range(new))


def test_prefill_attention_sees_its_history() -> None:
    """A chunk after a history costs its own pairs and those with the history, at the mfu of what it sees."""
    attention = Attention(
        heads=32, kv_bytes=4096, pair_flops=4 * 32 * 128, decode_flops=0, history_flops=0, window=None, dtype="bf16"
    )
    time = AttentionTime(attention, DEVICE)
    for new, history in ((1024, 0), (1024, 7168), (8192, 0)):
        pairs = new * history + new * (new + 1) / 2
        assert time.prefill([(new, history)]) == pytest.approx(1e13 * pairs * 4 * 32 * 128 / 1e14, rel=1e-9)
    assert time.prefill([(1, 0)]) == to_ticks(4e-6)
    assert time.prefill([]) == 0
    assert time.prefill([(2048, 100), (1024, 5000)]) == pytest.approx(
        time.prefill([(2048, 100)]) + time.prefill([(1024, 5000)])
    )


def test_short_chunks_wait_for_their_history_together() -> None:
    """Eight short chunks side by side take less than one after the other, and no less than the longest alone."""
    forward = build_forward(find_model("llama-3.1-8b"), find_gpu("h100-sxm-80gb"), 1)
    (time,) = forward.times
    one = time.prefill([(16, 8192)])
    eight = time.prefill([(16, 8192)] * 8)
    assert one < eight < 4 * one
    assert time.prefill([(128, 8192)]) == one


@pytest.mark.parametrize(
    ("gpu", "chunk", "times"),
    [
        ("rtx-pro-6000-96gb", 512, (57.3, 111.0, 154.8, 348.6)),
        ("rtx-pro-6000-96gb", 2048, (226.7, 268.1, 393.5, 570.0)),
        ("rtx-4090-24gb", 512, (100.7, 206.0, 286.8, 707.6)),
        ("rtx-4090-24gb", 2048, (431.7, 522.4, 718.6, 1095.9)),
    ],
)
def test_decodes_beside_chunks_take_a_tile_each(gpu: str, chunk: int, times: tuple[float, ...]) -> None:
    """Attention of one layer of Llama-3.1-8B over a chunk and 16 or 64 decodes of 256 or 1,024 tokens, us (vLLM 0.19,
    LLMServingSim's profiler, MIT). One after the other they would take half of it where decodes are many.
    """
    (attention,) = build_forward(find_model("llama-3.1-8b"), find_gpu(gpu), 1).times
    for (decodes, context), measured in zip([(16, 256), (16, 1024), (64, 256), (64, 1024)], times, strict=True):
        ticks = attention.mixed([(chunk, 0)], decodes, decodes * context)
        assert ticks == pytest.approx(to_ticks(1e-6 * measured), rel=0.4)
    apart = attention.prefill([(512, 0)]) + attention.decode(64, 64 * 256)
    assert attention.mixed([(512, 0)], 64, 64 * 256) > 1.5 * apart


@pytest.mark.parametrize(("decodes", "times"), [(64, (32.2, 113.6, 333.3)), (128, (53.7, 177.5, 606.2))])
def test_each_decode_costs_its_heads_beside_its_context(decodes: int, times: tuple[float, ...]) -> None:
    """Decode attention of one layer of Llama-3.1-8B on RTX 4090 over 16, 256 and 1,024 tokens of context, us (vLLM
    0.19, LLMServingSim's profiler, MIT). Without the heads' own time the first would be a third of it or less.
    """
    (attention,) = build_forward(find_model("llama-3.1-8b"), find_gpu("rtx-4090-24gb"), 1).times
    for context, measured in zip((16, 256, 1024), times, strict=True):
        assert attention.decode(decodes, decodes * context) == pytest.approx(to_ticks(1e-6 * measured), rel=0.35)


def test_decodes_apart_from_chunks_add_their_time() -> None:
    """Hopper and MLA have a kernel for decodes."""
    for model, gpu in (("llama-3.1-8b", "h100-sxm-80gb"), ("deepseek-v3", "rtx-pro-6000-96gb")):
        (attention,) = build_forward(find_model(model), find_gpu(gpu), 1).times
        assert attention.mixed([(512, 0)], 64, 64_000) == attention.prefill([(512, 0)]) + attention.decode(64, 64_000)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5),
            st.lists(
                st.tuples(*[st.integers(0, 40)] * 2, st.tuples(*[st.integers(0, 1)] * 3) | st.just(())),
                min_size=1,
                max_size=4,
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    st.tuples(*[st.integers(0, 60)] * 3),
)
def test_totals_of_launches_are_those_of_playing_them(
    groups: list[tuple[int, list[tuple[int, int, tuple[int, ...]]]]], attention: tuple[int, ...]
) -> None:
    """Max-plus in closed form equals a CPU that launches ahead and a GPU that executes in order."""
    cpu = gpu = end = 0
    for repeat, launches in groups:
        for ahead, work, layers in launches * repeat:
            cpu += ahead
            ticks = work + sum(map(mul, layers, attention))
            gpu += ticks
            end = max(end, cpu) + ticks
    stretch = [
        (repeat, [Launch("k", ahead, np.array([0, work]), layers) for ahead, work, layers in launches])
        for repeat, launches in groups
    ]
    of_all = launch_totals(stretch)
    attention = attention[: len(of_all.gpu.layers)]
    totals = totals_of_one(of_all, 1, least=[min(each, 20) for each in attention])
    assert totals.cpu == cpu
    assert ticks_of(totals.gpu, attention) == gpu
    assert max(ticks_of(line, attention) for line in totals.critical) == end


def test_graphs_of_a_step_are_those_of_vllm() -> None:
    sizes = (1, 2, 4, 8, 16, 24, 32)
    policy = graph_policy("full_and_piecewise", sizes, max_num_seqs=24)
    assert policy.choose(5, decode_only=True) == (GraphMode.FULL, 8)
    assert policy.choose(5, decode_only=False) == (GraphMode.PIECEWISE, 8)
    assert policy.choose(24, decode_only=True) == (GraphMode.FULL, 24)
    assert policy.choose(25, decode_only=True) == (GraphMode.PIECEWISE, 32)
    assert policy.choose(33, decode_only=False) == (GraphMode.NONE, 33)
    only = graph_policy("full_decode_only", sizes, max_num_seqs=32)
    assert only.choose(5, decode_only=True) == (GraphMode.FULL, 8)
    assert only.choose(5, decode_only=False) == (GraphMode.NONE, 5)
    assert graph_policy("none", sizes, 32).choose(1, decode_only=True) == (GraphMode.NONE, 1)


def test_top_p_sorts_the_logits_of_every_sampled_row() -> None:
    model, gpu = find_model("llama-3.1-8b"), find_gpu("h100-sxm-80gb")
    greedy, sorting = (build_forward(model, gpu, 1, sampling=LogitWork(sorts=each)) for each in (False, True))
    more = set(sorting.shape.head) - set(greedy.shape.head)
    assert [operator.name for operator in more] == ["top_p_sort"]
    rows = np.array([32, 64, 128])
    ticks = sorting.head(rows).gpu.base - greedy.head(rows).gpu.base
    # 200 bytes a logit at 0.8 x 3.35 TB/s are 9.6 us a row, but for the 50 MB that L2 holds.
    assert (ticks[2] - ticks[1]) / 64 / 1e7 == pytest.approx(200 * 128256 / (0.8 * 3.35e6), rel=1e-3)
    assert ticks[0] > 0


def test_penalties_count_the_tokens_of_every_sampled_row() -> None:
    """Two 64-bit counts a logit are cleared and read, and one of them once more; all else is smaller than these."""
    model, gpu = find_model("qwen2.5-7b"), find_gpu("h100-sxm-80gb")
    plain, penalized = (build_forward(model, gpu, 1, sampling=LogitWork(penalizes=each)) for each in (False, True))
    more = set(penalized.shape.head) - set(plain.shape.head)
    assert [operator.name for operator in more] == ["penalties"]
    ticks = penalized.head(np.array([64, 128])).gpu.base - plain.head(np.array([64, 128])).gpu.base
    bytes_per_logit = to_seconds(int(ticks[1] - ticks[0])) / 64 * 0.8 * 3.35e12 / model.vocab_size
    assert 5 * 8 < bytes_per_logit < 3 * 5 * 8
