"""The order of what happens at one and the same tick.

SimPy processes equal times by priority. Everything that may bring new requests comes before an engine decides a step, so
that the step sees them, and requests that arrive together are let in together, in an order that depends on nothing but
themselves.
"""

from typing import Final

from simpy import Environment, Event

ANNOUNCE: Final = 1
"""Arrivals, and engines telling of finished requests (SimPy's NORMAL)."""

LET_IN: Final = 2
"""Those who came at this instant are let in, sorted."""

DECIDE: Final = 3
"""Engines decide their next steps."""


class Clock(Environment):
    """A SimPy environment whose time is whole ticks (`simserve.spec.ticks`)."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)

    @property
    def num_events(self) -> int:
        """Events scheduled so far. Asking takes a number from SimPy's counter, so ask once, at the end."""
        return next(self._eid)


class Due(Event):
    """An event that will simply be due at tick `at`, with a priority among those of the same tick."""

    def __init__(self, env: Environment, at: int, priority: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=priority, delay=at - env.now)  # type: ignore[arg-type]
