"""The order of what happens at one and the same tick.

SimPy processes equal times by priority. Everything that may bring new requests comes before an engine decides a step,
so that the step sees them; and users and requests come in the order of their numbers, which depends on nothing else.
"""

from heapq import heappush
from typing import Any, Final

from simpy import Environment, Event

USER: Final = 2
"""Plus the number of a user: a user of a closed loop is ready to send (after SimPy's own priorities, 0 and 1)."""

SEND: Final = 1 << 38
"""Plus the row of a request: a client that may give up sends it, or sends it again."""

ARRIVAL: Final = 1 << 40
"""Plus the row of a request: a request reaches the engine."""

TRANSFER: Final = 1 << 50
"""Plus the row of a request: its KV begins to be sent from one replica to another."""

HANG_UP: Final = 1 << 55
"""Plus the row of a request: an engine hears that a client has given up."""

DECIDE: Final = 1 << 60
"""An engine decides its next step."""

GIVE_UP: Final = 1 << 61
"""A client's patience ends: after all decisions of the tick, so that what they tell him by then is in time. What he
does about it reaches the engines a tick later at the earliest.
"""

ROUND: Final = 1 << 62
"""An API server takes up all requests that are there: last of all, since an engine that has slept through a run of
steps tells only now of answers that end at this tick, whose clients may send again at once.
"""


class Due(Event):
    """An event that will simply be due at tick `at`, with a priority among those of the same tick."""

    def __init__(self, env: Environment, at: int, priority: int, value: Any = None) -> None:
        # what Event.__init__ and Environment.schedule do, without their four calls: a run makes one for each step
        self.env = env
        self.callbacks = []
        self._ok = True
        self._value = value
        heappush(env._queue, (at, priority, next(env._eid), self))  # type: ignore[misc]
