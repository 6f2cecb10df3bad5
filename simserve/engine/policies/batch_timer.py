"""The timer of static batches: after it has run out nobody waits for a batch to be full."""

from typing import Final

from simpy import Event

from simserve.engine.instant import Due
from simserve.engine.policies.static import Static
from simserve.engine.replica import Replica
from simserve.engine.request import Request

TIMEOUT: Final = 1 << 50
"""Among the events of one tick: after all arrivals, before the engine decides."""


class BatchTimer:
    """Runs for each request that waits at a replica, from its arrival for `timeout` ticks."""

    def __init__(self, replica: Replica, scheduler: Static, timeout: int) -> None:
        self._replica = replica
        self._scheduler = scheduler
        self._timeout = timeout

    def start(self, request: Request) -> None:
        """A request begins to wait."""
        env = self._replica.env
        event = Due(env, int(env.now) + self._timeout, TIMEOUT, request)
        assert event.callbacks is not None
        event.callbacks.append(self._run_out)

    def _run_out(self, event: Event) -> None:
        assert isinstance(event.value, Request)
        self._scheduler.overdue(event.value)
        self._replica.pace.disturb()
