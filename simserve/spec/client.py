"""What a client does that does not wait for ever: timeouts, retries, and the pauses before them.

What is left out has the value of OpenAI's Python SDK (openai-python 1.9 and later, `_constants.py` and
`_base_client.py`), but for the timeouts: left out, a client waits as long as it takes.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import Count, Number, PositiveSeconds, Seconds, Share
from simserve.spec.strict import Strict


class BackoffSpec(Strict):
    """The pause before the n-th retry: `min(initial * factor ** (n - 1), max)`, less a random share up to `jitter`."""

    initial: Seconds = 0.5
    factor: Annotated[Number, Field(ge=1, le=100)] = 2.0
    max: Seconds = 8.0
    jitter: Share = 0.25
    """0: none; 1: anything from nothing to the whole pause ("full jitter")."""


class ClientSpec(Strict):
    """A client that gives up on an attempt, tells the server, and tries again.

    It tries again after a timeout and after HTTP 429 and 503, never after 400 (a prompt that is too long). An answer
    that has begun is begun anew, where OpenAI's SDK would leave that to its caller; a `Retry-After` is not modelled.
    """

    timeout: PositiveSeconds | None = None
    """From sending an attempt to its last token: what a client that does not stream waits for. The token that comes at
    this very time is in time."""
    first_token_timeout: PositiveSeconds | None = None
    """From sending an attempt to its first token: what a client that streams waits for."""
    retries: Annotated[Count, Field(le=100)] = 2
    """Attempts after the first."""
    backoff: BackoffSpec = BackoffSpec()

    @model_validator(mode="after")
    def _both_can_happen(self) -> Self:
        whole, first = self.timeout, self.first_token_timeout
        if whole is not None and first is not None and first >= whole:
            found = f"{first:g} s never comes before the timeout of {whole:g} s: remove it, or make it shorter"
            raise PydanticCustomError("order", "{found}", {"found": found, "key": "first_token_timeout"})
        return self
