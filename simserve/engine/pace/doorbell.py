"""What the process of an engine sleeps on: its next step is due, or somebody rings."""

from simpy import Event

from simserve.engine.clock import Clock
from simserve.engine.instant import DECIDE, Due


class Doorbell:
    """One sleeper at a time. `is_idle`: it has nothing to do and waits to be rung for."""

    def __init__(self, env: Clock) -> None:
        self.is_idle = False
        self._env = env
        self._wake = Event(env)

    def idle(self) -> Event:
        """Sleep until somebody rings: yield the event."""
        self.is_idle = True
        self._wake = Event(self._env)
        return self._wake

    def sleep_until(self, at: int) -> Event:
        """Sleep until tick `at`, or until somebody rings: yield the event."""
        self._wake = Due(self._env, at, DECIDE)
        return self._wake

    def ring(self, at: int) -> None:
        """Whoever sleeps wakes at tick `at`, whatever it planned: the event that it waits for is exchanged."""
        self.is_idle = False
        planned = self._wake
        self._wake = Due(self._env, at, DECIDE)
        self._wake.callbacks, planned.callbacks = planned.callbacks, []
