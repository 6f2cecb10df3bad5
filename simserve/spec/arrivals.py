"""When requests come: the arrival processes a scenario can name. `simserve.workload.arrivals` draws from them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import PositiveCount, PositiveNumber, PositiveSeconds, Seconds
from simserve.spec.strict import Strict


class Poisson(Strict):
    """Independent arrivals: exponential gaps."""

    process: Literal["poisson"]
    rate: PositiveNumber
    """Requests per second."""
    normalize: bool = False
    """Rescale the gaps so that the last arrival falls on count / rate, as `vllm bench serve` does."""


class Gamma(Strict):
    """Gamma-distributed gaps: more or less bursty than Poisson."""

    process: Literal["gamma"]
    rate: PositiveNumber
    burstiness: PositiveNumber | None = None
    """Shape of the gamma distribution as in `vllm bench serve`: 1 is Poisson, below is burstier."""
    cv: PositiveNumber | None = None
    """Coefficient of variation of the gaps, 1 / sqrt(burstiness)."""
    normalize: bool = False

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if (self.burstiness is None) == (self.cv is None):
            raise PydanticCustomError("exclusive", "state exactly one of burstiness and cv (cv = 1 / sqrt(burstiness))")
        return self

    @property
    def shape(self) -> float:
        """Shape parameter of the gaps."""
        return self.burstiness if self.burstiness is not None else 1 / (self.cv or 1.0) ** 2


class Constant(Strict):
    """Equal gaps."""

    process: Literal["constant"]
    rate: PositiveNumber


class Ramp(Strict):
    """Poisson arrivals whose rate goes from one value to another over the run."""

    process: Literal["ramp"]
    start_rate: PositiveNumber
    end_rate: PositiveNumber
    shape: Literal["linear", "exponential"] = "linear"
    normalize: bool = False


class Stage(Strict):
    """Part of a piecewise load."""

    rate: PositiveNumber
    duration: PositiveSeconds


class Piecewise(Strict):
    """Poisson arrivals in stages of constant rate; after the last stage they stop."""

    process: Literal["piecewise"]
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]


class AllAtOnce(Strict):
    """Every request at time 0: an offline batch."""

    process: Literal["all_at_once"]


class ClosedLoop(Strict):
    """A fixed number of users, each of whom sends the next request after the answer to the last.

    Latency is bounded by construction here: it says nothing about an open load.
    """

    process: Literal["closed_loop"]
    users: PositiveCount
    think_time: Seconds = 0.0
    """Pause between an answer and the user's next request."""


Arrivals = Annotated[
    Poisson | Gamma | Constant | Ramp | Piecewise | AllAtOnce | ClosedLoop, Field(discriminator="process")
]
