"""The door of the fleet: what is refused before a replica has anything to do with it.

A prompt that is too long is refused with HTTP 400, what is beyond the fleet's rate limit with 429, and what is beyond
the queue limits of the replica that the router chose with 503. All of it happens when the front end has counted the
tokens, which is when a request would reach the engine.
"""

from enum import IntEnum
from typing import NamedTuple

from simserve.engine.replica import Replica
from simserve.engine.request import Request
from simserve.spec.rate_limit import RateLimitSpec
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import TICKS_PER_SECOND, to_ticks

_TICKS_PER_MINUTE = 60 * TICKS_PER_SECOND


class Refusal(IntEnum):
    """Why a request is refused: its HTTP status."""

    TOO_LONG = 400
    RATE_LIMIT = 429
    QUEUE_FULL = 503


class TokenBucket:
    """A bucket that `rate` tokens a minute flow into until it is full; full at first.

    The level is counted in parts of a token, as many as a minute has ticks: whole numbers, so that it does not matter
    how often it is looked at.
    """

    def __init__(self, rate: int, burst: int) -> None:
        self._rate = rate
        self._capacity = self._level = rate * burst
        self._since = 0

    def holds(self, num_tokens: int, now: int) -> bool:
        """Whether so many tokens are in it at tick `now`."""
        self._level = min(self._capacity, self._level + self._rate * (now - self._since))
        self._since = now
        return self._level >= num_tokens * _TICKS_PER_MINUTE

    def take(self, num_tokens: int) -> None:
        """Take out tokens that it holds."""
        self._level -= num_tokens * _TICKS_PER_MINUTE


class RateLimit:
    """Requests and tokens per minute; a request needs room in both buckets, and takes from both or from none."""

    def __init__(self, spec: RateLimitSpec) -> None:
        burst = to_ticks(spec.burst)
        self._requests, self._tokens = (
            None if rate is None else TokenBucket(rate, burst)
            for rate in (spec.requests_per_minute, spec.tokens_per_minute)
        )

    def admits(self, num_tokens: int, now: int) -> bool:
        """Whether a request of so many tokens (prompt and `max_tokens`) may pass at tick `now`; if so, it does."""
        buckets = [(self._requests, 1), (self._tokens, num_tokens)]
        if not all(bucket is None or bucket.holds(count, now) for bucket, count in buckets):
            return False
        for bucket, count in buckets:
            if bucket is not None:
                bucket.take(count)
        return True


class QueueLimits(NamedTuple):
    """What the front end of each replica lets in: so many requests, and so many prompt tokens without a first token;
    None for as many as come.
    """

    max_requests: int | None
    max_tokens: int | None


class QueueLimit:
    """The front end of one replica, which is counted and, where there is a limit of tokens, keeps first tokens.

    A request that finishes, or whose first token comes, at the very tick of another's arrival still counts; so does one
    that was aborted, until the engine lets go of it. Source: vLLM 0.32, v1/engine/async_llm.py, check_admission
    (`max_num_queued_reqs`, `max_num_queued_tokens`).
    """

    def __init__(self, replica: Replica, limits: QueueLimits) -> None:
        self._replica = replica
        self._max_requests, self._max_tokens = limits
        self._prefilling: list[Request] = []

    def admits(self) -> bool:
        """Whether another request may come in now."""
        replica, most = self._replica, self._max_requests
        if most is not None and replica.num_outstanding(int(replica.env.now)) >= most:
            return False
        return self._max_tokens is None or self._num_queued_tokens() < self._max_tokens

    def entered(self, request: Request) -> None:
        """A request has come in."""
        if self._max_tokens is not None:
            self._prefilling.append(request)

    def _num_queued_tokens(self) -> int:
        self._prefilling = [request for request in self._prefilling if self._replica.is_prefilling(request)]
        return sum(request.num_prompt_tokens for request in self._prefilling)


class Admission(NamedTuple):
    """What a fleet refuses beside prompts that are too long; None for nothing."""

    rate_limit: RateLimit | None
    queue_limits: QueueLimits | None

    @classmethod
    def of(cls, scenario: Scenario) -> "Admission":
        """That of a scenario, with buckets that are full."""
        rate_limit, engine = scenario.cluster.rate_limit, scenario.engine
        queue_limits = QueueLimits(engine.max_num_queued_reqs, engine.max_num_queued_tokens)
        return cls(
            None if rate_limit is None else RateLimit(rate_limit),
            None if queue_limits == (None, None) else queue_limits,
        )
