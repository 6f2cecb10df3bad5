"""How a scenario is computed: where step times come from, at which resolution, and which part of the run counts."""

from typing import Literal

from simserve.spec.hardware import HostSpec
from simserve.spec.quantities import PositiveSeconds, Seconds
from simserve.spec.strict import Strict


class CostSpec(Strict):
    """Where the time of a step comes from."""

    level: Literal["auto", "datasheet", "kernels", "calibrated"] = "auto"
    constant_step: PositiveSeconds | None = None
    """Every step takes this long, whatever its batch: for theory."""
    host: HostSpec
    """CPU time of engine and front end: the profile's, except what the scenario states here."""


class RunSpec(Strict):
    """The run itself."""

    resolution: Literal["runs", "steps", "kernels"] = "runs"
    warmup: Seconds = 0.0
    """Requests that arrive earlier do not count in the statistics."""
    max_time: PositiveSeconds | None = None
    """Simulated time after which the run stops; requests still running then are unfinished."""
