"""The service level objective: what share of the requests must keep which latencies."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import Number, PositiveSeconds
from simserve.spec.strict import Strict


class SloSpec(Strict):
    """Upper limits of latencies, met when this percentile of the requests keeps all that are stated."""

    percentile: Annotated[Number, Field(ge=1, lt=100)] = 95.0
    ttft: PositiveSeconds | None = None
    """Time to first token, at the client."""
    tpot: PositiveSeconds | None = None
    """Time per output token after the first."""
    itl: PositiveSeconds | None = None
    """Gap between two tokens."""
    e2el: PositiveSeconds | None = None
    """Arrival to last token."""

    @model_validator(mode="after")
    def _states_a_limit(self) -> Self:
        if all(limit is None for limit in (self.ttft, self.tpot, self.itl, self.e2el)):
            raise PydanticCustomError("empty", "needs at least one of ttft, tpot, itl and e2el")
        return self
