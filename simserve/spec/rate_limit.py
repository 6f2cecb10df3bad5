"""What a fleet takes in per minute."""

from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import PositiveCount, PositiveSeconds
from simserve.spec.strict import Strict


class RateLimitSpec(Strict):
    """What the fleet takes in; a request beyond it gets HTTP 429. Token buckets, full at first.

    A request counts with its prompt and its `max_tokens`, whatever it generates, as at Azure OpenAI, which estimates
    the most that it may process. One that is refused takes nothing. The limit is one for all clients and replicas.
    """

    requests_per_minute: PositiveCount | None = None
    tokens_per_minute: PositiveCount | None = None
    burst: PositiveSeconds = 60.0
    """A bucket holds what its rate gives in this time."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.requests_per_minute is None and self.tokens_per_minute is None:
            raise PydanticCustomError("empty", "needs requests_per_minute or tokens_per_minute")
        if self.requests_per_minute is not None and self.requests_per_minute * self.burst < 60:
            rate = self.requests_per_minute
            found = f"{rate} requests per minute never make one within {self.burst:g} s: at least {60 / rate:g} s do"
            raise PydanticCustomError("impossible", "{found}", {"found": found, "key": "burst"})
        return self
