"""How far simulated runs were from measured servers, and which of that says something about a new run.

`hardware_profiles/measured_error.csv` holds medians over the rows of a table of measured servers, a group of rows for
each deployment; the measured rows themselves are not in it. `simserve validate table TABLE --left-out --errors FILE`
writes it. Predictions took the host times of each row's engine version (`simserve/validation/engine_versions.yaml`), as
far as other GPUs, models and TP tell them.

An error is quoted for a run that resembles its evidence: the same GPU, cost level, format of the weights, kinds of
layers and parallelism, a model of about the size, a load of about the height. Otherwise the nearest evidence is named,
with what differs.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from simserve.spec import resources
from simserve.spec.gpus import find_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario

FILE = "measured_error.csv"

_NO_TIMING = {"price_per_hour", "provenance", "sources", "memory"}
"""Keys of a profile that change no time of a step."""
_SIZE_CLASS = 2.0
"""A model resembles another of half to twice its parameters."""
_BUSIER = 1.5
"""A run resembles one in which two thirds as many requests were under way at once."""


class Deployment(NamedTuple):
    """What a run was simulated with, as far as its error may depend on it."""

    gpu: str
    level: str
    model: str
    weight_dtype: str
    parameters: float
    """In billions."""
    layers: str
    """Kinds of attention and of MLPs."""
    parallel: str


class Evidence(NamedTuple):
    """What was measured of a deployment: errors by metric, up to so many requests at once."""

    deployment: Deployment
    concurrency: int
    errors: Mapping[str, Mapping[str, float | int]]
    """Metric -> `median_abs`, a share, and the number of `runs`."""

    @property
    def runs(self) -> int:
        """Runs of the metric that has most."""
        return max(int(each["runs"]) for each in self.errors.values())


COLUMNS = (*Deployment._fields, "concurrency", "metric", "median_abs", "runs", "engine_versions")


def deployment_of(scenario: Scenario, level: str) -> Deployment:
    """What a scenario is simulated with at a cost level."""
    model = scenario.model
    weights = {"fp16": "bf16"}.get(model.weight_dtype, model.weight_dtype)  # they take the same time
    size = round(model.num_parameters / 1e9, 2)
    gpu = scenario.cluster.gpu.name
    return Deployment(gpu, level, model.name, weights, size, _layers(model), _parallel(scenario))


def _layers(model: ModelSpec) -> str:
    mlps = ["experts"] if model.is_moe else ["dense"]
    return " + ".join([*sorted(model.attention_layers), *mlps])


def _parallel(scenario: Scenario) -> str:
    cluster = scenario.cluster
    parts = [f"TP{cluster.tensor_parallel}"]
    if cluster.pipeline_parallel > 1:
        parts.append(f"PP{cluster.pipeline_parallel}")
    if cluster.expert_parallel is not None:
        parts.append(f"EP over {cluster.expert_parallel.data_parallel} DP")
    if cluster.pools is not None:
        parts.append("prefill and decode apart")
    return " ".join(parts)


def measured_error(scenario: Scenario, level: str, concurrency: int) -> dict[str, Any] | None:
    """Known errors of runs like this one, in which `concurrency` requests were under way at once on a replica; None
    where nobody measured on this GPU at this level.

    `of`: `model` (this model, deployed like this), `like` (others that resemble it), `nearest` (what differs is in
    `differs`) or `steps` (held-out steps of the profile's own calibration). `errors`: metric -> `median_abs`
    (`mean_abs` of steps), a share, and the number of `runs` (steps). `whose`: the deployments in words.
    """
    gpu = scenario.cluster.gpu
    if scenario.engine.speculative is not None:
        return None  # no row of the table speculated
    if level == "calibrated":
        quality = gpu.calibrated.quality if gpu.calibrated else None
        return {"of": "steps", "errors": {"step": {"mean_abs": quality.held_out.mape}}} if quality else None
    if not _is_as_measured(gpu):
        return None
    own = deployment_of(scenario, level)
    known = [each for each in evidence() if each.deployment[:2] == own[:2]]
    like = [each for each in known if not list(differences(own, concurrency, each))]
    same = [each for each in like if each.deployment.model == own.model]
    if like:
        found = same or like
        whose = ", ".join(dict.fromkeys(_words(each.deployment) for each in found))
        return {"of": "model" if same else "like", "errors": _pooled(found), "whose": whose}
    if not known:
        return None
    nearest = min(known, key=lambda each: (len(list(differences(own, concurrency, each))), -each.runs))
    return {
        "of": "nearest",
        "errors": {metric: dict(each) for metric, each in nearest.errors.items()},
        "whose": _words(nearest.deployment),
        "differs": list(differences(own, concurrency, nearest)),
    }


def per_replica(result: Result, concurrency: int) -> int:
    """Requests at once on one replica, of so many in a fleet; rounded up."""
    return -(-concurrency // result.scenario.cluster.num_engines)


def differences(own: Deployment, concurrency: int, known: Evidence) -> Iterator[str]:
    """In what a run differs from evidence on the same GPU at the same level, in words."""
    other = known.deployment
    if own.weight_dtype != other.weight_dtype:
        yield f"weights in {own.weight_dtype}, not {other.weight_dtype}"
    if own.layers != other.layers:
        yield f"layers of {own.layers}, not {other.layers}"
    if own.parallel != other.parallel:
        yield f"{own.parallel}, not {other.parallel}"
    if own.model != other.model and not 1 / _SIZE_CLASS <= own.parameters / other.parameters <= _SIZE_CLASS:
        yield f"{own.parameters:.3g} B parameters, not {other.parameters:.3g} B"
    if concurrency > _BUSIER * known.concurrency:
        yield f"{concurrency} requests at once, not {known.concurrency}"


def _words(deployment: Deployment) -> str:
    return f"{deployment.model} in {deployment.weight_dtype} on {deployment.parallel}"


def _pooled(found: Sequence[Evidence]) -> dict[str, dict[str, float | int]]:
    """Errors of several groups of runs: the median of their medians, each counted as often as it has runs."""
    pooled: dict[str, dict[str, float | int]] = {}
    for metric in dict.fromkeys(metric for each in found for metric in each.errors):
        groups = sorted(
            (float(each.errors[metric]["median_abs"]), int(each.errors[metric]["runs"]))
            for each in found
            if metric in each.errors
        )
        runs = sum(count for _, count in groups)
        passed = 0
        for median, count in groups:
            passed += count
            if 2 * passed >= runs:
                pooled[metric] = {"median_abs": median, "runs": runs}
                break
    return pooled


def _is_as_measured(gpu: GpuSpec) -> bool:
    """Whether it is a profile that comes with simserve, with nothing changed that changes a time."""
    if not any(each.deployment.gpu == gpu.name for each in evidence()):
        return False
    profile = find_gpu(gpu.name)
    return gpu is profile or gpu.model_dump(exclude=_NO_TIMING) == profile.model_dump(exclude=_NO_TIMING)


@cache
def evidence() -> tuple[Evidence, ...]:
    """All that comes with simserve."""
    path = resources.find("hardware_profiles", FILE)
    found: dict[tuple[Deployment, int], dict[str, dict[str, float | int]]] = {}
    if path is not None:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                words = {name: row[name] for name in Deployment._fields if name != "parameters"}
                key = Deployment(parameters=float(row["parameters"]), **words), int(row["concurrency"])
                error = {"median_abs": float(row["median_abs"]), "runs": int(row["runs"])}
                found.setdefault(key, {})[row["metric"]] = error
    return tuple(Evidence(*key, errors) for key, errors in found.items())
