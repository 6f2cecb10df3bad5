"""What `simserve validate live` sets up: the profile's model on the device, and a workload that fits its range."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from calibration.calibrate import BLOCK_SIZE
from calibration.comparison import Comparison, compare
from calibration.engine.config import model_config
from calibration.engine.runner import ModelRunner
from calibration.live import refuse
from simserve.simulation import scheduler_config
from simserve.spec.calibrated import CalibratedSpec
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import resolve_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run; `model` is needed where the calibrated model is no name of the catalogue.

    `overrides` change the scenario of `live_scenario`: `workload.shared_prefix={groups: 4, length: 60}`.
    """

    profile: str
    loads: Sequence[float]
    device: str = "cpu"
    model: str | None = None
    requests: int = 100
    repetitions: int = 3
    seed: int = 0
    overrides: Sequence[str] = ()


def validate_live(settings: Settings, progress: Callable[[float], None]) -> list[Comparison]:
    """Compare at every load.

    Raises:
        ScenarioError: the profile is not calibrated, or was calibrated on another kind of device, or the overrides ask
            for what the live engine does not do.
    """
    if any(change.startswith("workload.arrivals") for change in settings.overrides):
        raise ScenarioError("workload.arrivals: the loads give the arrivals, as Poisson rates; leave it out")
    spec = _calibration(settings)
    scenario = live_scenario(settings, spec).with_overrides(settings.overrides)
    refuse(scenario)
    torch.set_num_threads(1)
    backend: Literal["torch", "triton"] = spec.backend
    runner = ModelRunner(
        model_config(settings.model or spec.model),
        scheduler_config(scenario, scenario.engine.num_gpu_blocks or 2),
        device=settings.device,
        backend=backend,
        dtype=spec.weight_dtype,
        graph_sizes=spec.graph_sizes,
    )
    runner.warm_up()
    return compare(runner, scenario, settings.loads, repetitions=settings.repetitions, progress=progress)


def _calibration(settings: Settings) -> CalibratedSpec:
    spec = GpuSpec.model_validate(resolve_gpu(settings.profile)).calibrated
    if spec is None:
        raise ScenarioError(f"--profile {settings.profile}: is not calibrated; run simserve calibrate")
    if spec.device != settings.device:
        raise ScenarioError(f"--profile {settings.profile}: was calibrated on {spec.device}, not {settings.device}")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ScenarioError("--device cuda: torch finds no CUDA device here")
    return spec


def live_scenario(settings: Settings, spec: CalibratedSpec) -> Scenario:
    """Chat-like lengths within the calibrated range: prompts of a fifth of its tokens, answers of a third of those."""
    domain = spec.domain
    prompt = max(8, min(domain.tokens // 5, 512))
    answer = max(4, prompt // 3)
    longest = 8 * prompt
    blocks = min(domain.decodes * -(-longest // BLOCK_SIZE), domain.context // BLOCK_SIZE) + 2
    text = f"""
        name: live
        seed: {settings.seed}
        model: {settings.model or spec.model}
        workload:
          num_requests: {settings.requests}
          arrivals: {{process: all_at_once}}
          input: {{distribution: lognormal, mean: {prompt}, cv: 0.6, min: 4, max: {4 * prompt}}}
          output: {{distribution: lognormal, mean: {answer}, cv: 0.6, min: 2, max: {4 * answer}}}
        cluster: {{gpu: {settings.profile}}}
        engine:
          max_num_seqs: {domain.decodes}
          max_num_batched_tokens: {domain.tokens}
          max_model_len: {longest}
          num_gpu_blocks: {blocks}
          async_scheduling: false
        cost: {{level: calibrated}}
    """
    return parse_scenario(text)
