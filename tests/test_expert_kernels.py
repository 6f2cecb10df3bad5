"""Experts by a kernel of which a profile states rates: padded, in blocks, near what was measured; who chooses it."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_rows import CLOSED_LOOP

from simserve.cost import build_step_cost
from simserve.cost.device import Device
from simserve.cost.expert_kernels import ExpertKernel, PaddedExperts, expert_kernel
from simserve.cost.explain import operators_of_step
from simserve.cost.gemm_table import ExpertsShape
from simserve.cost.operators import Routing
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu, profiles
from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario
from simserve.validation.measured import MeasuredRun
from simserve.validation.scenario_of_row import scenario_of_row

_FILE = Path(__file__).parent / "data/expert_kernels.csv"
MEASURED = [*csv.DictReader(_FILE.read_text(encoding="utf-8").splitlines())]
"""Measured times, the geometric mean of an even and a power-law choice of experts. NVIDIA's aisimulate 0.13 wheel
(Apache-2.0), vLLM 0.25."""


def kernel_of(gpu: str, backend: str) -> ExpertKernel:
    spec = find_gpu(gpu).expert_kernels[backend]
    return expert_kernel(backend, spec.floor, spec.bandwidth, spec.flops)


def experts(kernel: ExpertKernel, routing: Routing, inter: float = 2880, ranks: int = 1) -> PaddedExperts:
    shape = ExpertsShape(2880, inter, routing.per_token, routing.experts, ranks)
    return PaddedExperts("experts", shape, routing, kernel, 0.53125, 2)


def seconds(operator: PaddedExperts, tokens: float, gpu: str = "h100-sxm-80gb") -> float:
    measured = operator.work(np.array([tokens]), Device.of(find_gpu(gpu))).measured
    assert measured is not None
    return float(measured.item())


MARLIN = kernel_of("h100-sxm-80gb", "marlin")


def scenario(gpu: str, *overrides: str, model: str = "gpt-oss-120b") -> Scenario:
    return parse_scenario(
        f"""
        model: {model}
        workload: {{arrivals: {{process: poisson, rate: 1}}, input: 100, output: 10, num_requests: 10}}
        cluster: {{gpu: {gpu}}}
        engine: {{max_model_len: 8192, num_gpu_blocks: 1000}}
        """,
        overrides,
    )


@pytest.mark.parametrize(
    ("gpu", "median", "p90"),
    [
        ("b200-sxm-180gb", 0.079, 0.203),
        ("h100-sxm-80gb", 0.095, 0.209),
        ("h200-sxm-141gb", 0.108, 0.223),
    ],
)
def test_measured_experts_are_found(gpu: str, median: float, p90: float) -> None:
    """Two models with one set of rates, cut over one to eight GPUs, err by so much."""
    errors = []
    for row in MEASURED:
        if row["gpu"] == gpu:
            size = {name: int(row[name]) for name in ("hidden", "inter", "top_k", "experts", "tp", "tokens")}
            shape = ExpertsShape(size["hidden"], size["inter"], size["top_k"], size["experts"], size["tp"])
            element = 0.5 + (2 / 128 if row["dtype"] == "int4_wo" else 1 / 32)
            routing = Routing(size["experts"], size["top_k"])
            operator = PaddedExperts("experts", shape, routing, kernel_of(gpu, row["backend"]), element, 2)
            errors.append(seconds(operator, size["tokens"], gpu) / (1e-6 * float(row["time_us"])) - 1)
    assert len(errors) == 54
    assert np.median(np.abs(errors)) == pytest.approx(median, abs=0.001)
    assert np.percentile(np.abs(errors), 90) == pytest.approx(p90, abs=0.001)


@given(st.integers(1, 20_000), st.sampled_from([(8, 2), (128, 4), (384, 8)]), st.floats(0, 1.5))
def test_blocks_hold_all_rows_and_more_tokens_never_fewer(tokens: int, router: tuple[int, int], skew: float) -> None:
    routing = Routing(*router, skew=skew)
    operator = experts(MARLIN, routing)
    rows = np.array([float(tokens), tokens + 1.0])
    padded, more = operator.padded_rows(rows)
    (touched,) = routing.touched(rows[:1])
    assert padded >= max(tokens * routing.per_token, touched * MARLIN.blocks[0]) * (1 - 1e-9)
    assert padded <= tokens * routing.per_token + touched * MARLIN.blocks[-1]
    assert more >= padded * (1 - 1e-9)
    assert seconds(operator, tokens + 1.0) >= seconds(operator, tokens)


def test_padding_is_paid_for() -> None:
    """gpt-oss on eight GPUs: 360 columns of an expert are 384 for Marlin, 512 for TensorRT-LLM's kernels."""
    routing = Routing(128, 4)
    for kernel, inter in ((MARLIN, 384), (kernel_of("b200-sxm-180gb", "flashinfer_trtllm_afp8"), 512)):
        whole, exact = experts(kernel, routing, ranks=8), experts(kernel, routing, inter=inter)
        assert seconds(whole, 64) == pytest.approx(seconds(exact, 64))
        assert seconds(whole, 64) < seconds(experts(kernel, routing, inter=inter + 1), 64)


def test_one_token_waits_for_its_experts_and_many_for_the_multiplication() -> None:
    routing = Routing(128, 4)
    weights = 3 * 3072 * 2944
    one = 4 * weights * 0.53125 / MARLIN.bandwidth
    assert seconds(experts(MARLIN, routing), 1) == pytest.approx(MARLIN.floor + one, rel=0.02)
    many = 2 * 8192 * 4 * weights / MARLIN.flops
    assert many < seconds(experts(MARLIN, routing), 8192) < 1.5 * many


@given(st.sampled_from([(16, 1), (128, 4), (256, 8)]), st.integers(1, 500), st.floats(0.05, 1.0))
def test_skewed_routers_touch_fewer_experts(router: tuple[int, int], tokens: int, skew: float) -> None:
    rows = np.array([float(tokens)])
    even, skewed, more = (Routing(*router, skew=each).touched(rows)[0] for each in (0.0, skew, 2 * skew))
    assert more <= skewed * (1 + 1e-9)
    assert skewed <= even * (1 + 1e-9)
    if tokens == 1:
        assert more == pytest.approx(router[1])
    assert Routing(*router, skew=skew).touched(np.array([1e9]))[0] == pytest.approx(router[0])


def test_skewed_touches_are_those_of_popular_experts() -> None:
    """Each token takes the first four of 128 exponential clocks, the r-th of which ticks at a rate of 1 / r."""
    rng = np.random.default_rng(1)
    clocks = rng.exponential(size=(200, 32, 128)) * np.arange(1, 129)
    touched = [len(set(np.argsort(batch, axis=1)[:, :4].ravel().tolist())) for batch in clocks]
    assert Routing(128, 4, skew=1.0).touched(np.array([32.0]))[0] == pytest.approx(np.mean(touched), rel=0.03)


def test_skew_shrinks_measured_experts_where_bytes_bind_them() -> None:
    def time(tokens: int, skew: float) -> float:
        asked: tuple[list[tuple[int, int]], int, int, int] = ([], tokens, 100 * tokens, tokens)
        found = operators_of_step(scenario("h100-sxm-80gb", f"cost.routing_skew={skew}"), *asked)
        return next(each.time for each in found if each.name == "experts")

    assert time(1, 1.0) == time(1, 0.0)
    assert 0.5 * time(32, 0.0) < time(32, 1.0) < 0.85 * time(32, 0.0)


def test_marlin_multiplies_large_batches_at_half_the_speed_of_triton() -> None:
    """The reason why servers told to use it need longer for prompts; small batches take about the same."""

    def gpu_time(backend: str, tokens: int) -> int:
        cost = build_step_cost(scenario("h200-sxm-141gb", f"engine.moe_backend={backend}"))
        return cost.step([(tokens, 0)], 0, 0, 1).gpu

    assert gpu_time("triton", 8000) == gpu_time("auto", 8000)
    assert gpu_time("marlin", 8000) / gpu_time("auto", 8000) == pytest.approx(2, rel=0.1)
    assert gpu_time("marlin", 1) / gpu_time("auto", 1) == pytest.approx(1, rel=0.1)


def test_a_dense_drafter_has_no_experts_to_choose_a_kernel_for() -> None:
    """A backend names the kernels of the target's experts; the draft model beside it is as without."""
    draft = (
        "engine.speculative={method: draft_model, draft_model: qwen3-0.6b, num_speculative_tokens: 3, acceptance: 0.7}"
    )

    def gpu_time(backend: str, *beside: str) -> int:
        asked = "model.weight_dtype=mxfp4", f"engine.moe_backend={backend}", *beside
        cost = build_step_cost(scenario("h100-sxm-80gb", *asked, model="qwen3-30b-a3b"))
        return cost.step([(1000, 0)], 0, 0, 1).gpu

    assert gpu_time("marlin", draft) - gpu_time("auto", draft) == gpu_time("marlin") - gpu_time("auto") > 0


def test_favourites_of_a_router_are_refused_without_experts() -> None:
    with pytest.raises(ScenarioError, match="routing_skew: would be ignored"):
        scenario("h100-sxm-80gb", "cost.routing_skew=0.5", model="llama-3.1-8b")


def test_a_backend_that_was_not_measured_is_refused() -> None:
    for gpu, backend, model, words in (
        ("a100-sxm-80gb", "triton", "gpt-oss-120b", "take one of auto, marlin"),
        ("b200-sxm-180gb", "marlin", "gpt-oss-120b", "take one of auto, flashinfer_trtllm, flashinfer_trtllm_afp8"),
        ("h100-sxm-80gb", "marlin", "mixtral-8x7b", "mxfp4"),
    ):
        with pytest.raises(ScenarioError, match=words):
            build_step_cost(scenario(gpu, f"engine.moe_backend={backend}", model=model))


@pytest.mark.parametrize("gpu", profiles(), ids=lambda gpu: gpu.name)
def test_profiles_state_kernels_that_are_known(gpu: Any) -> None:
    for name, spec in gpu.expert_kernels.items():
        assert name != gpu.mxfp4_backend
        assert expert_kernel(name, spec.floor, spec.bandwidth, spec.flops).bandwidth < gpu.hbm_bandwidth
    source = gpu.sources.get("expert_kernels", "")
    assert bool(gpu.expert_kernels) == bool(source and "left out" not in source)


@pytest.mark.parametrize(
    ("gpu", "backend"), [("H100-SXM-80GB", "marlin"), ("B200-SXM-180GB", "flashinfer_trtllm_afp8")]
)
def test_launch_scripts_choose_the_kernels_of_a_row(gpu: str, backend: str) -> None:
    def chosen(**cells: str) -> tuple[str, bool]:
        found = scenario_of_row(MeasuredRun({**CLOSED_LOOP, "gpu": gpu, **cells}, {})).scenario
        return found.engine.moe_backend, found.cost.routing_skew > 0

    assert chosen() == chosen(engine_version="0.11.2") == (backend, True)
    assert chosen(model="meta-llama/Llama-3.3-70B-Instruct", weight_dtype="fp8", tp="4")[0] == "auto"
    assert chosen(source="somebody") == ("auto", False)


def test_weights_that_are_widened_are_multiplied_at_less_than_the_peak() -> None:
    """A100 has no FP8: Marlin reached 141 TFLOP/s there."""

    def time(dtype: str, decodes: int) -> float:
        deployed = scenario("a100-sxm-80gb", f"model.weight_dtype={dtype}", "cost.level=datasheet", model="qwen3-8b")
        found = operators_of_step(deployed, [], decodes, 100 * decodes, decodes)
        return next(each.time for each in found if each.name == "gate_up")

    assert time("fp8", 8) < 0.6 * time("bf16", 8)
    flops = 36 * 2 * 1024 * 4096 * 2 * 12288
    assert time("fp8", 1024) == pytest.approx(flops / 140.4e12, rel=0.001)
    assert time("fp8", 1024) > 1.5 * time("bf16", 1024)
