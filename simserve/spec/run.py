"""How a scenario is computed: at which resolution, which part of it counts, and the cost model's level."""

from typing import Literal

from simserve.spec.hardware import HostSpec
from simserve.spec.quantities import Seconds
from simserve.spec.strict import Strict


class CostSpec(Strict):
    """Where the time of a step comes from."""

    level: Literal["auto", "datasheet", "kernels", "calibrated"] = "auto"
    constant_step: Seconds | None = None
    """Every step takes this long, whatever its batch: for theory."""
    host: HostSpec
    """CPU time of engine and front end; the profile's, with what `cost.host` overrides."""


class RunSpec(Strict):
    """The run itself."""

    resolution: Literal["runs", "steps", "kernels"] = "runs"
    warmup: Seconds = 0.0
    """Requests that arrive earlier do not count in the statistics."""
    max_time: Seconds | None = None
    """Simulated time after which the run stops; requests still running then are unfinished."""
