"""`simserve calibrate`: measure, fit, check, write; the order in which a machine becomes a hardware profile."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from calibration.engine.config import DTYPES, ModelConfig, model_config
from calibration.engine.runner import ModelRunner
from calibration.fit import BOUND, NOISY, Fitted, check, fit_steps, steps_of
from calibration.launches import measure_launches
from calibration.measure import Progress, copy_bandwidth, gemm_peak, host_times, measure
from calibration.points import CPU_LIMITS, CUDA_LIMITS, QUICK_LIMITS, Limits, points
from calibration.profile import SAMPLES, Findings, calibrated_section, write_profile
from calibration.samples import SampleFile
from simserve.engine.config import SchedulerConfig
from simserve.spec.errors import ScenarioError

BLOCK_SIZE = 16
CUDA_GRAPH_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Batches of decodes that are captured on a GPU."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to calibrate, and how thoroughly; `base` is the profile with the device's data sheet."""

    folder: Path
    device: str = "cpu"
    model: str = "tiny-llama"
    dtype: str = "bf16"
    quick: bool = False
    passes: int = 3
    base: str | None = None
    bound: float = BOUND
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The profile that was written, and its fit."""

    profile: Path
    fitted: Fitted
    wall_over_cpu: float
    probe_drift: float


def calibrate(request: Request, progress: Progress, say: Callable[[str], None] = lambda _: None) -> Calibrated:
    """Measure, fit and write; samples that an earlier call left in the folder are not measured again.

    Raises:
        ScenarioError: no such device or model, the fit is off by more than its bound, or the folder holds samples of
            something else.
    """
    limits = limits_of(request)
    runner = build_runner(request, limits)
    runner.warm_up()
    steps = points(limits, quick=request.quick)
    model = runner.model
    subject = f"{model.name} ({model.num_parameters} parameters), {request.dtype}, {runner.device.type}, {limits}"
    file = SampleFile(request.folder / SAMPLES, subject)
    measured = measure(runner, steps, request.passes, file, progress)
    fitted = fit_steps(steps_of(measured.samples))
    say(
        f"held-out steps: {fitted.errors.mape:.1%} off on average (form {fitted.fit.form}); "
        f"noise floor {fitted.noise_floor:.1%}, probe moved {measured.probe_drift:.1%}, "
        f"wall/clock {measured.wall_over_cpu:.2f}"
    )
    check(fitted, request.bound)
    if fitted.noise_floor > NOISY:
        say(
            f"the machine was noisy: two halves of the passes differ by more than {NOISY:.0%}, so that no live "
            "validation will pass with this profile; stop what else runs here and calibrate again with --force"
        )
    graph_sizes = sizes_of(runner.device, limits)
    idle = ModelRunner(
        model.without_work(), scheduler_config(limits), device=runner.device, backend=runner.backend,
        dtype=request.dtype, graph_sizes=graph_sizes,
    )  # fmt: skip
    idle.warm_up()
    counts = [count for count in (1, 4, 16, 32, 64, 128) if count <= limits.max_num_seqs]
    findings = Findings(
        points=steps,
        passes=request.passes,
        measured=measured,
        fitted=fitted,
        host=host_times(idle, counts),
        launches=measure_launches(idle),
        graph_sizes=graph_sizes,
        copy_bandwidth=copy_bandwidth(runner.device),
        gemm_peak=gemm_peak(runner.device, DTYPES[request.dtype]),
    )
    section = calibrated_section(runner, findings, file.path)
    profile = write_profile(request.folder, section, findings.launches, runner, request.base)
    return Calibrated(profile, fitted, measured.wall_over_cpu, measured.probe_drift)


def build_runner(request: Request, limits: Limits) -> ModelRunner:
    """The engine's runner on the device.

    Raises:
        ScenarioError: the device is not there, or the number format is unknown.
    """
    if request.dtype not in DTYPES:
        raise ScenarioError(f"--dtype {request.dtype}: expected one of {', '.join(DTYPES)}")
    if request.device == "cuda" and not torch.cuda.is_available():
        raise ScenarioError("--device cuda: torch finds no CUDA device here; use --device cpu")
    torch.set_num_threads(1)
    device = torch.device(request.device)
    backend: Literal["torch", "triton"] = "triton" if device.type == "cuda" else "torch"
    return ModelRunner(
        model_config(request.model),
        scheduler_config(limits),
        device=device,
        backend=backend,
        dtype=request.dtype,
        graph_sizes=sizes_of(device, limits),
    )


def scheduler_config(limits: Limits) -> SchedulerConfig:
    """Sizes of the cache that the limits need."""
    return SchedulerConfig(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=2 * limits.max_context,
        num_gpu_blocks=limits.kv_tokens // BLOCK_SIZE + limits.max_num_seqs + 8,
        block_size=BLOCK_SIZE,
        async_scheduling=False,
    )


def sizes_of(device: torch.device, limits: Limits) -> tuple[int, ...]:
    """Batches to capture: none on a CPU."""
    if device.type != "cuda":
        return ()
    return tuple(size for size in CUDA_GRAPH_SIZES if size <= limits.max_num_seqs)


def limits_of(request: Request) -> Limits:
    """The range to measure: what a serving engine meets, as far as the device's memory holds it."""
    if request.quick:
        limits = QUICK_LIMITS
    elif request.device == "cuda" and torch.cuda.is_available():
        limits = _fitting(CUDA_LIMITS, model_config(request.model))
    else:
        limits = CPU_LIMITS
    tokens = min(limits.max_num_batched_tokens, request.max_tokens or limits.max_num_batched_tokens)
    return Limits(limits.max_num_seqs, tokens, limits.max_context, limits.kv_tokens)


def _fitting(limits: Limits, model: ModelConfig) -> Limits:
    free, _ = torch.cuda.mem_get_info()
    room = int(0.8 * free) - 2 * model.num_parameters
    per_token = 4 * model.num_layers * model.num_kv_heads * model.head_dim
    tokens = min(limits.kv_tokens, room // per_token)
    if tokens < 4 * limits.max_context:
        raise ScenarioError(f"--model {model.name}: leaves no room for KV on this GPU; choose a smaller model")
    return Limits(limits.max_num_seqs, limits.max_num_batched_tokens, limits.max_context, tokens)
