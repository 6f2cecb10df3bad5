"""Passes of the compiler that fuse kernels, and the library whose GEMMs an engine calls: what they change, what not."""

from collections import Counter

import numpy as np
import pytest

from simserve.cost.build import modelled_step_cost
from simserve.cost.collectives import one_shot
from simserve.cost.curve import FloatArray
from simserve.cost.modelled import ModelledStepCost
from simserve.cost.operators import FusedAllReduce
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu
from simserve.spec.hardware import OneShotSpec
from simserve.spec.load import parse_scenario
from simserve.spec.ticks import to_ticks

QUESTION = """
model: {config: llama-3.3-70b, weight_dtype: fp8, kv_dtype: fp8}
workload: {arrivals: {process: all_at_once}, input: 100, output: 10, num_requests: 4}
cluster: {gpu: b200-sxm-180gb, tensor_parallel: 8}
"""
FUSED = "engine.pass_config.fuse_allreduce_rms=true"
NVFP4 = "model.weight_dtype=nvfp4"
LAYERS = 80
MIB = 2**20


def cost(*changes: str) -> ModelledStepCost:
    return modelled_step_cost(parse_scenario(QUESTION, list(changes)))


def names(of: ModelledStepCost) -> Counter[str]:
    """How often each operator runs before the head."""
    counts: Counter[str] = Counter()
    for operator, times in of.forward.operators.items():
        counts[operator.name] += times
    return counts


def decode(of: ModelledStepCost, users: int) -> int:
    """GPU ticks of one decode for each of some users, at 1000 tokens of context."""
    return of.decode(users).at(1000 * users).gpu


def messages(*sizes: float) -> FloatArray:
    return np.array(sizes, dtype=np.float64)


def test_every_norm_is_in_the_kernel_of_the_sum_before_it() -> None:
    """Two norms a layer and the final one, of which the embedding's sum takes the first and the last layer's the
    final.
    """
    apart, fused = names(cost()), names(cost(FUSED))
    norms, sums = (sum(apart[name] for name in apart if ending in name) for ending in ("_norm", "_all_reduce"))
    assert norms == sums == 2 * LAYERS + 1
    assert sum(fused[name] for name in fused if name.endswith("_all_reduce_and_norm")) == norms
    kept = {name: times for name, times in apart.items() if not name.endswith(("_norm", "_all_reduce"))}
    assert {name: fused[name] for name in kept} == kept
    assert sum(fused.values()) == sum(apart.values()) - norms


@pytest.mark.parametrize("users", [1, 4, 16, 32])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_one_kernel_takes_less_than_two(ranks: int, users: int) -> None:
    own = f"cluster.tensor_parallel={ranks}"
    saved = decode(cost(own), users) - decode(cost(own, FUSED), users)
    assert saved > 2 * LAYERS * to_ticks(0.5e-6)


def test_beyond_the_largest_message_each_runs_by_itself() -> None:
    """Then the operator takes what its parts take, the copy at its end included."""
    plain, limited = cost(), cost(FUSED, "engine.pass_config.fi_allreduce_fusion_max_size_mb=1")
    forward = limited.forward
    fused = next(each for each in forward.operators if isinstance(each, FusedAllReduce))
    rows = messages(64, 65)
    inside, beyond = fused.work(rows, forward.device).ticks().tolist()
    parts = sum(each.work(rows, forward.device).ticks() for each in fused.apart)
    assert [each.name for each in fused.apart] == ["embedding_all_reduce", "input_norm", "copy_back"]
    assert beyond == parts[1]
    assert inside < parts[0]
    copies = (2 * LAYERS + 1) * fused.apart[-1].work(rows, forward.device).ticks()[1]
    assert decode(limited, 65) == decode(plain, 65) + copies


@pytest.mark.parametrize(("gpu", "ranks", "largest"), [("b200-sxm-180gb", 8, 1), ("h100-sxm-80gb", 4, 2)])
def test_the_largest_message_is_vllms_where_none_is_stated(gpu: str, ranks: int, largest: float) -> None:
    fused = cost(FUSED, f"cluster.gpu={gpu}", f"cluster.tensor_parallel={ranks}").forward.shape.embed[-1]
    assert isinstance(fused, FusedAllReduce)
    assert fused.largest == largest * MIB


def test_one_gpu_has_no_sum_to_fuse() -> None:
    alone = "cluster.tensor_parallel=1"
    assert cost(alone, FUSED).forward.shape == cost(alone).forward.shape


def test_all_copies_of_a_message_cross_the_links() -> None:
    """Beyond what was measured, each further byte goes to all others at the last rate that was measured."""
    spec = OneShotSpec(times={100: 1e-6, 200: 3e-6})
    between_two, among_four = one_shot(spec, 2), one_shot(spec, 4)
    assert between_two(messages(50, 150, 300)) == pytest.approx([1e-6, 2e-6, 5e-6])
    assert among_four(messages(300)) == pytest.approx(between_two(messages(300)))
    assert among_four.bus_bandwidth == pytest.approx(3 * between_two.bus_bandwidth)


def test_published_times_of_large_messages_are_met() -> None:
    """Of FlashInfer's fused kernel among eight B300 (vLLM's pull request 37756), whose links are those of B200. The
    profile's times end at 1 MiB.
    """
    fused = cost(FUSED, "engine.pass_config.fi_allreduce_fusion_max_size_mb=8").forward
    operator = fused.shape.embed[-1]
    times = operator.work(messages(256, 512), fused.device).times["network"]
    assert times == pytest.approx([58e-6, 115e-6], rel=0.05)


def test_attention_that_quantises_leaves_out_that_kernel_alone() -> None:
    for changes in ((), (NVFP4,)):
        apart, fused = names(cost(*changes)), names(cost(*changes, "engine.pass_config.fuse_attn_quant=true"))
        assert apart - fused == Counter({"out_quantize": LAYERS})
        assert not fused - apart


@pytest.mark.parametrize(("weights", "rows", "ratio"), [("nvfp4", 32, 1.27), ("nvfp4", 4096, 1.0), ("fp8", 32, 1.0)])
def test_cutlass_is_slower_in_small_batches_of_nvfp4_alone(weights: str, rows: int, ratio: float) -> None:
    own, measured = (
        gemm_ticks(cost(f"model.weight_dtype={weights}", f"engine.linear_backend={backend}"), rows)
        for backend in ("flashinfer_cutlass", "auto")
    )
    assert own / measured == pytest.approx(ratio, abs=0.001)


def gemm_ticks(of: ModelledStepCost, rows: int) -> int:
    """GPU ticks of each GEMM of a layer once."""
    forward = of.forward
    gemms = [each for each in forward.operators if each.group == "linear"]
    assert len(gemms) == 4
    return sum(each.work(messages(rows), forward.device).ticks().item() for each in gemms)


def test_gemms_that_an_autotuner_chooses_cost_the_host_outside_graphs() -> None:
    launch = find_gpu("b200-sxm-180gb").launch
    assert launch.autotuned is not None
    more = to_ticks(launch.autotuned) - to_ticks(launch.kernel)
    own, eager = "engine.linear_backend=flashinfer_cutlass", "engine.cuda_graph.mode=full_decode_only"
    chunk = [(500, 0)], 3, 3000, 4
    assert cost(own, eager).step(*chunk).cpu - cost(eager).step(*chunk).cpu == 4 * LAYERS * more
    assert cost(own, eager).decode(4).cpu == cost(eager).decode(4).cpu


@pytest.mark.parametrize("mode", ["full_and_piecewise", "full_decode_only", "none"])
@pytest.mark.parametrize("weights", ["fp8", "nvfp4"])
def test_launches_one_by_one_add_up_to_the_step(mode: str, weights: str) -> None:
    of = cost(
        FUSED,
        f"model.weight_dtype={weights}",
        f"engine.cuda_graph.mode={mode}",
        "engine.linear_backend=flashinfer_cutlass",
        "engine.pass_config.fuse_attn_quant=true",
    )
    for chunks, decodes, context, sampled in (([(300, 0)], 5, 4000, 6), ([], 8, 9000, 8)):
        launches = of.launches(chunks, decodes, context, sampled)
        step = of.step(chunks, decodes, context, sampled)
        assert sum(kernel.ticks for launch in launches for kernel in launch.kernels) == step.gpu
        host = of.host.before + of.host.after + of.host.per_sequence * (decodes + len(chunks))
        assert sum(launch.cpu for launch in launches) + host == step.cpu


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ((FUSED, "engine.enforce_eager=true"), "pass_config: would be ignored under enforce_eager"),
        ((FUSED, "cluster.gpu=a100-sxm-80gb"), "fuse_allreduce_rms: measured among no number of these GPUs, not 8"),
        (("engine.pass_config.fuse_norm=true",), "fuse_norm"),
        (("engine.linear_backend=marlin",), "linear_backend"),
        (("engine.linear_backend=flashinfer_cutlass", "model.weight_dtype=bf16"), "linear_backend: would be ignored"),
        (
            ("engine.linear_backend=flashinfer_cutlass", "cluster.gpu=h100-sxm-80gb"),
            "was not measured on h100-sxm-80gb",
        ),
        (("engine.pass_config.fi_allreduce_fusion_max_size_mb=1",), "would be ignored without fuse_allreduce_rms"),
    ],
)
def test_what_cannot_be_is_refused(changes: tuple[str, ...], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        cost(*changes)
