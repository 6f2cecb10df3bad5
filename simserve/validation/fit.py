"""A profile fitted to a user's own benchmarks: the few constants that matter, held near those of the base profile.

Each constant is the base's times a factor. The factors minimise the squared relative errors of the statistics of all
benchmarks, in units of `NOISE`, plus their squared logarithms in units of `PRIOR`: what the benchmarks do not say stays
where the base has it (ridge regression, by damped Gauss-Newton steps: Levenberg, 1944).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.hardware import GpuSpec
from simserve.spec.scenario import Scenario
from simserve.validation.replay_benchmark import Recording, ReplayError, predicted_latencies, replay_errors, replayed

FloatArray = NDArray[np.float64]

NOISE = 0.05
"""Relative error of a statistic that is as good as none: benchmarks repeat to a few percent."""
PRIOR = 1.0
"""Logarithm by which a constant may differ from the base's as easily as a statistic by `NOISE`."""
_STEP = 0.1
_ROUNDS = 12
_ENOUGH = 1e-3
_LEAST = {"per_step": 100e-6, "per_sequence": 5e-6, "front_end_per_request": 200e-6}
"""Seconds that stand for a host constant which the base leaves (nearly) out, so that a factor can change it."""
_TAILS = {"p95": 0.5, "p99": 0.25}
CONSTANTS = ("hbm_bandwidth", "peak_flops", *_LEAST)


@dataclass(frozen=True)
class FittedServer:
    """A fitted profile, the factors by constant, and the errors of each benchmark: fitted, and predicted from others.

    `left_out` is empty where there is only one benchmark.
    """

    gpu: GpuSpec
    factors: Mapping[str, float]
    fitted: Mapping[str, list[ReplayError]]
    left_out: Mapping[str, list[ReplayError]]


def fit_server(
    scenario: Scenario, recordings: Sequence[Recording], progress: Callable[[float], None] = lambda _: None
) -> FittedServer:
    """Fit the constants of the scenario's GPU to all recordings; leave each out in turn to see what the fit is worth.

    Raises:
        ScenarioError: there is no recording, or the deployment cannot exist.
    """
    if not recordings:
        raise ScenarioError("a fit needs at least one benchmark")
    with ExitStack() as files:
        runs = [Run(files.enter_context(replayed(scenario, each)), each) for each in recordings]
        theta = _fit(runs)
        left_out = {}
        for index, run in enumerate(runs if len(runs) > 1 else ()):
            progress((index + 1) / (len(runs) + 1))
            left_out[str(run.recording.path)] = run.errors(_fit([*runs[:index], *runs[index + 1 :]]))
        fitted = {str(run.recording.path): run.errors(theta) for run in runs}
    factors = dict(zip(CONSTANTS, np.exp(theta).tolist(), strict=True))
    return FittedServer(_profile(scenario, theta, recordings), factors, fitted, left_out)


class Run(NamedTuple):
    """A recording, and the scenario that replays it on the base profile."""

    scenario: Scenario
    recording: Recording

    def errors(self, theta: FloatArray) -> list[ReplayError]:
        """Errors with these logarithms of factors."""
        result = simulate(_changed(self.scenario, theta))
        return replay_errors(self.recording, predicted_latencies(result, self.recording.clock))


def _fit(runs: Sequence[Run]) -> FloatArray:
    """Logarithms of the factors."""
    theta = np.zeros(len(CONSTANTS))
    residuals = _residuals(runs, theta)
    damping = 1.0
    for _ in range(_ROUNDS):
        steps = np.eye(theta.size) * _STEP
        slopes = np.stack([(_residuals(runs, theta + step) - residuals) / _STEP for step in steps], 1)
        better = False
        while damping < 1e4 and not better:
            change = np.linalg.solve(slopes.T @ slopes + damping * np.eye(theta.size), -slopes.T @ residuals)
            moved = theta + np.clip(change, -1.0, 1.0)
            tried = _residuals(runs, moved)
            better = float(tried @ tried) < float(residuals @ residuals)
            damping *= 0.3 if better else 4.0
        if not better:
            break
        gain = float(residuals @ residuals - tried @ tried)
        theta, residuals = moved, tried
        if gain < _ENOUGH * float(residuals @ residuals):
            break
    return theta


def _residuals(runs: Sequence[Run], theta: FloatArray) -> FloatArray:
    errors = [np.log1p(each.error) * _weight(each.metric) for run in runs for each in run.errors(theta)]
    return np.concatenate([np.nan_to_num(np.array(errors)) / NOISE, theta / PRIOR])


def _weight(metric: str) -> float:
    """A tail rests on few requests and moves most from run to run."""
    return _TAILS.get(metric.split("_", maxsplit=1)[0], 1.0)


def _changed(scenario: Scenario, theta: FloatArray) -> Scenario:
    """The scenario on the GPU with these factors. The host's times go into its costs, which outweigh the profile's."""
    gpu = _gpu(scenario, theta)
    host = scenario.cost.host.model_copy(update=_host_times(scenario, theta))
    cluster = scenario.cluster.model_copy(update={"gpu": gpu})
    return scenario.model_copy(update={"cluster": cluster, "cost": scenario.cost.model_copy(update={"host": host})})


def _gpu(scenario: Scenario, theta: FloatArray) -> GpuSpec:
    gpu = scenario.cluster.gpu
    bandwidth, flops = np.exp(theta[:2]).tolist()
    rates = {dtype: peak * flops for dtype, peak in gpu.peak_flops.items()}
    return gpu.model_copy(update={"hbm_bandwidth": gpu.hbm_bandwidth * bandwidth, "peak_flops": rates})


def _host_times(scenario: Scenario, theta: FloatArray) -> dict[str, float]:
    host = scenario.cost.host
    factors = np.exp(theta[2:]).tolist()
    times = {
        name: max(getattr(host, name), least) * factor
        for (name, least), factor in zip(_LEAST.items(), factors, strict=True)
    }
    return times | {"update": min(host.update, times["per_step"])}


def _profile(scenario: Scenario, theta: FloatArray, recordings: Sequence[Recording]) -> GpuSpec:
    gpu = _gpu(scenario, theta)
    files = ", ".join(recording.path.name for recording in recordings)
    source = f"fitted by simserve fit-server to {files}, starting from {gpu.name}"
    return gpu.model_copy(
        update={
            "name": f"{gpu.name}-fitted",
            "provenance": source,
            "host": scenario.cost.host.model_copy(update=_host_times(scenario, theta)),
            "sources": {**gpu.sources, **dict.fromkeys(("hbm_bandwidth", "peak_flops", "host"), source)},
        }
    )


def write_profile(gpu: GpuSpec, folder: Path, *, force: bool = False) -> Path:
    """Write FOLDER/profile.yaml, whole or not at all.

    Raises:
        FileExistsError: it is there already, and `force` is false.
    """
    path = folder / "profile.yaml"
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists")
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / ".profile.yaml.part"
    data = gpu.model_dump(mode="python", exclude_defaults=False)
    aside.write_text(yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True), encoding="utf-8")
    aside.replace(path)
    return path
