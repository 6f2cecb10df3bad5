"""How far simulated runs were from measured servers: the errors that a new run is shown with.

`hardware_profiles/measured_error.csv` holds medians over the rows of a table of measured servers, for each GPU and cost
level, over all models and for each that has runs enough; the measured rows themselves are not in it.
`simserve validate table TABLE --left-out --errors FILE` writes it. Predictions took the host times of each row's engine
version (`simserve/validation/engine_versions.yaml`), as far as other GPUs, models and TP tell them.
"""

import csv
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from simserve.spec import resources
from simserve.spec.gpus import find_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.scenario import Scenario

FILE = "measured_error.csv"
COLUMNS = ("gpu", "level", "model", "weight_dtype", "metric", "median_abs", "runs", "engine_versions")

_NO_TIMING = {"price_per_hour", "provenance", "sources", "memory"}
"""Keys of a profile that change no time of a step."""


class Simulated(NamedTuple):
    """What a run was simulated with. An empty model stands for all of them."""

    gpu: str
    level: str
    model: str = ""
    weight_dtype: str = ""

    @property
    def of_any_model(self) -> "Simulated":
        """The same for all models."""
        return self._replace(model="", weight_dtype="")


def simulated(scenario: Scenario, level: str) -> Simulated:
    """What a scenario is simulated with at a cost level."""
    model = scenario.model
    weights = {"fp16": "bf16"}.get(model.weight_dtype, model.weight_dtype)  # they take the same time
    return Simulated(scenario.cluster.gpu.name, level, model.name, weights)


def measured_error(scenario: Scenario, level: str) -> dict[str, Any] | None:
    """Known errors of runs like this one; None where nobody measured.

    `of`: `model` (this model on this GPU), `gpu` (any models on it) or `steps` (held-out steps of the profile's own
    calibration). `errors`: metric -> `median_abs` (`mean_abs` of steps), a share, and the number of `runs` (steps).
    """
    gpu = scenario.cluster.gpu
    if scenario.engine.speculative is not None:
        return None  # no row of the table speculated
    if level == "calibrated":
        quality = gpu.calibrated.quality if gpu.calibrated else None
        return {"of": "steps", "errors": {"step": {"mean_abs": quality.held_out.mape}}} if quality else None
    if not _is_as_measured(gpu):
        return None
    key = simulated(scenario, level)
    for of, found in (("model", _errors().get(key)), ("gpu", _errors().get(key.of_any_model))):
        if found:
            return {"of": of, "errors": found}
    return None


def _is_as_measured(gpu: GpuSpec) -> bool:
    """Whether it is a profile that comes with simserve, with nothing changed that changes a time."""
    if not any(key.gpu == gpu.name for key in _errors()):
        return False
    profile = find_gpu(gpu.name)
    return gpu is profile or gpu.model_dump(exclude=_NO_TIMING) == profile.model_dump(exclude=_NO_TIMING)


@cache
def _errors() -> Mapping[Simulated, dict[str, dict[str, float | int]]]:
    path = resources.find("hardware_profiles", FILE)
    found: dict[Simulated, dict[str, dict[str, float | int]]] = {}
    if path is not None:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                key = Simulated(row["gpu"], row["level"], row["model"], row["weight_dtype"])
                error = {"median_abs": float(row["median_abs"]), "runs": int(row["runs"])}
                found.setdefault(key, {})[row["metric"]] = error
    return found
