"""The clock of a run: a SimPy environment whose time is whole ticks, which traffic can be fed to without events."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from simpy import Environment
from simpy.core import Infinity

FOREVER: Final = 1 << 62
"""A tick that no run reaches."""


class Clock(Environment):
    """A SimPy environment in ticks (`simserve.spec.ticks`).

    Traffic that comes by the clock, whatever happens, may be fed to it in order of time. Such an arrival is no event of
    SimPy's: it comes before all events of its tick but urgent ones, and a replica that nothing else could disturb lets
    it pass without going through the queue of events.
    """

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self._num_arrivals = 0
        self._arrival_at: int = FOREVER
        self._arrival: Any = None
        self._arrivals: Iterator[tuple[int, Any]] = iter(())
        self._deliver: Callable[[Any], object] = lambda _: None

    @property
    def num_events(self) -> int:
        """Events and fed arrivals so far. Asking takes a number from SimPy's counter, so ask once, at the end."""
        return next(self._eid) + self._num_arrivals

    def feed(self, arrivals: Iterator[tuple[int, Any]], deliver: Callable[[Any], object]) -> None:
        """Let `deliver` be called with each arrival at its tick; ticks never fall."""
        self._arrivals, self._deliver = arrivals, deliver
        self._draw()

    def _draw(self) -> None:
        """Look at the arrival that comes next."""
        self._arrival_at, self._arrival = next(self._arrivals, (FOREVER, None))

    def _let_arrive(self) -> None:
        """The next arrival happens now."""
        self._now, arrival = self._arrival_at, self._arrival
        self._draw()
        self._num_arrivals += 1
        self._deliver(arrival)

    def peek(self) -> Any:
        """When the next event or arrival is due."""
        queue, at = self._queue, self._arrival_at
        if queue and queue[0][0] < at:
            return queue[0][0]
        return at if at < FOREVER else Infinity

    def pass_arrivals(self, until: int) -> bool:
        """Let the arrivals up to and including `until` happen now, until an event is due by then; whether none is."""
        queue = self._queue
        while not queue or queue[0][0] > until:
            if self._arrival_at > until:
                return True
            self._let_arrive()
        return False

    def pass_next_arrival(self) -> bool:
        """Let the next arrival happen now, and those of its tick; False if there is none or an event is due by then."""
        queue, at = self._queue, self._arrival_at
        if at == FOREVER or (queue and queue[0][0] <= at):
            return False
        self.pass_arrivals(at)
        return True

    def step(self) -> None:
        """Let the next arrival or event happen."""
        queue, at = self._queue, self._arrival_at
        if at < FOREVER and (not queue or at < queue[0][0] or (at == queue[0][0] and queue[0][1])):
            self._let_arrive()
        else:
            super().step()
