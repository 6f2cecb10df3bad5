"""The service level objective: what share of the requests must keep which latencies."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import Limit, Number
from simserve.spec.strict import Strict


class SloSpec(Strict):
    """Upper limits of latencies, each kept when its latency at this percentile is; a request that fails keeps none.

    Every limit is one on a metric of that name in `simserve.report.metrics`.
    """

    percentile: Annotated[Number, Field(ge=1, lt=100)] = 95.0
    ttft: Limit | None = None
    """Time to first token, at the client."""
    tpot: Limit | None = None
    """Time per output token after the first."""
    itl: Limit | None = None
    """Gap between two tokens."""
    e2el: Limit | None = None
    """Arrival to last token."""

    @property
    def limits(self) -> dict[str, float]:
        """Metric -> limit in seconds, of the limits that are set."""
        return {name: limit for name, limit in self if name != "percentile" and limit is not None}

    @model_validator(mode="after")
    def _states_a_limit(self) -> Self:
        if not self.limits:
            raise PydanticCustomError("empty", "needs at least one of ttft, tpot, itl and e2el")
        return self
