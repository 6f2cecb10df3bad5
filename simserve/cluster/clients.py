"""Who sends requests, and when: traffic that comes by the clock, and traffic that waits for answers.

A client's clock is the engine's plus the front end: a request reaches the engine some time after it was sent, and a
token its client some time after the engine knew it. Where API servers are busy with each request, it waits for them
first.
"""

from collections.abc import Callable, Generator, Iterator
from typing import cast

import numpy as np
from simpy import Environment, Event

from simserve.cluster.door import ApiServer, Door
from simserve.cluster.fleet import Fleet
from simserve.cluster.records import Sent, Tables
from simserve.cost import FrontEnd
from simserve.engine.clock import Clock
from simserve.engine.instant import ARRIVAL, SEND, USER, Due
from simserve.engine.request import Request
from simserve.workload.columns import Arrival, IntArray, Rows, Workload, memory

_ROWS_AT_ONCE = 4096
"""Rows turned from columns into Python numbers at a time."""

Progress = Callable[[float], None]


class Clients:
    """Who sends the requests of a workload to a fleet. `arrival` tells when, in ticks, as far as it is known.
    `progress` is told the share of the requests that is done.
    """

    def __init__(self, workload: Workload, front_end: FrontEnd, fleet: Fleet) -> None:
        self.arrival = workload.arrival
        self.progress: Progress | None = None
        self._workload = workload
        self._front_end_delay = front_end_delay(front_end, workload)
        self._delivery = front_end.delivery
        self._fleet = fleet

    def delays(self) -> IntArray:
        """Ticks that each request took to reach the engine, once it was sent; -1: it did not."""
        return self._front_end_delay

    def answered(self, request: Request, known: int) -> None:
        """The engine knows at tick `known` that a request is finished; clients that wait for that go on."""

    def tables(self, horizon: int) -> Tables:
        """What became of the requests that were sent before tick `horizon`."""
        requests = self._fleet.request_columns(self._workload, self._sent(horizon))
        return Tables(requests, self._fleet.gap_columns(requests), {})

    def _sent(self, horizon: int) -> Sent:
        at = self.arrival
        return Sent(np.where(at < horizon, at, -1), self.delays(), self._delivery)


class OpenLoop(Clients):
    """Requests that arrive by the clock, whatever becomes of those before them. They are fed to it, or, without `fed`,
    sent by one SimPy process: then each is an event, for those who look between events.
    """

    def __init__(self, env: Clock, workload: Workload, front_end: FrontEnd, fleet: Fleet, *, fed: bool = True) -> None:
        super().__init__(workload, front_end, fleet)
        self._env = env
        self._reaches_engine = workload.arrival + self._front_end_delay
        if fed:
            env.feed(self._arrivals(), fleet.submit)
        else:
            env.process(self._send())

    def _send(self) -> Generator[Event, None, None]:
        env, submit = self._env, self._fleet.submit
        for at, arrival in self._arrivals():
            if at > env.now:
                yield env.timeout(at - env.now)
            submit(arrival)

    def _arrivals(self) -> Iterator[tuple[int, Arrival]]:
        order = np.argsort(self._reaches_engine, kind="stable")
        for start in range(0, len(order), _ROWS_AT_ONCE):
            if self.progress is not None:
                self.progress(start / len(order))
            rows = order[start : start + _ROWS_AT_ONCE]
            yield from zip(self._reaches_engine[rows].tolist(), self._workload.arrivals(rows), strict=True)


class Responsive(Clients):
    """Requests that wait: for the answer to another one, users in a closed loop and chats, or for an API server.

    In a closed loop each of `users` sends its next request `think` after its last answer; whoever is ready takes the
    next row of the workload. The next turn of a chat comes `think` after the answer to its parent. Users that are ready
    and requests that reach the engine at the same tick are taken in the order of their numbers.
    """

    def __init__(
        self, env: Environment, workload: Workload, front_end: FrontEnd, fleet: Fleet, num_api_servers: int = 1
    ) -> None:
        super().__init__(workload, front_end, fleet)
        self.arrival = workload.arrival.copy()
        self._env = env
        self._size = len(workload)
        self._rows = Rows(workload)
        self._delay, self._think = memory(self._front_end_delay, workload.think)
        self._read_after: IntArray | None = None
        """Ticks that an API server took to read each request, others included; -1: it has not, yet."""
        self._door: Door | None = None
        if front_end.busy:
            self._read_after = np.full(self._size, -1, dtype=np.int64)
            self._door = Door([ApiServer(env, front_end.busy, self._read) for _ in range(num_api_servers)])
        self._next_turn = _next_turns(workload)
        self._user: dict[int, int] = {}
        self._next_row = self._num_answered = 0
        for user in range(workload.users):
            self._ready(user, 0)
        env.process(self._send_by_the_clock())

    def delays(self) -> IntArray:
        """Ticks that each request took to reach the engine, once it was sent; -1: no API server read it."""
        delays, read_after = self._front_end_delay, self._read_after
        return delays if read_after is None else np.where(read_after < 0, -1, read_after + delays)

    def _send_by_the_clock(self) -> Generator[Event, None, None]:
        """Those rows whose arrival is known, such as the first turns of chats."""
        rows = np.flatnonzero(self.arrival >= 0)
        if self._door is not None:
            for at, row in zip(self.arrival[rows].tolist(), rows.tolist(), strict=True):
                yield Due(self._env, at, SEND + row)
                self._door.enter(row)
            return
        reaches_engine = self.arrival[rows] + self._front_end_delay[rows]
        order = np.lexsort((rows, reaches_engine))
        for at, row in zip(reaches_engine[order].tolist(), rows[order].tolist(), strict=True):
            yield Due(self._env, at, ARRIVAL + row)
            self._reach_engine(row)

    def answered(self, request: Request, known: int) -> None:
        """The engine knows at tick `known` that a request is finished: its client hears of it, and may send another."""
        self._note_progress()
        self._respond(int(request.id), known + self._delivery)

    def _note_progress(self) -> None:
        self._num_answered += 1
        if self.progress is not None and self._num_answered % _ROWS_AT_ONCE == 0:
            self.progress(self._num_answered / self._size)

    def _respond(self, row: int, answered: int) -> None:
        if row in self._user:
            self._ready(self._user.pop(row), answered + self._think[row])
        else:
            turn = self._next_turn[row]
            if turn >= 0:
                self._send(turn, answered + self._think[turn])

    def _ready(self, user: int, at: int) -> None:
        at_tick(self._env, at, USER + user, self._take_row, user)

    def _take_row(self, event: Event) -> None:
        if self._next_row < self._size:
            row, self._next_row = self._next_row, self._next_row + 1
            self._user[row] = number_of(event)
            self._send(row, int(self._env.now))

    def _send(self, row: int, at: int) -> None:
        self.arrival[row] = at
        if self._door is None:
            at_tick(self._env, at + self._delay[row], ARRIVAL + row, self._arrive, row)
        else:
            at_tick(self._env, at, SEND + row, self._enter, row)

    def _enter(self, event: Event) -> None:
        assert self._door is not None
        self._door.enter(number_of(event))

    def _read(self, name: int, at: int) -> None:
        """An API server will have read a request, or an attempt at one, at tick `at`."""
        assert self._read_after is not None
        row = name % self._size
        self._read_after[row] = at - self.arrival[row]
        at_tick(self._env, at + self._delay[row], ARRIVAL + row, self._arrive, name)

    def _arrive(self, event: Event) -> None:
        self._reach_engine(number_of(event))

    def _reach_engine(self, row: int) -> None:
        if not self._fleet.submit(self._rows.arrival(row)):
            self._respond(row, int(self._env.now))


def number_of(event: Event) -> int:
    """The user or row that an event is about."""
    return cast("int", event.value)


def at_tick(env: Environment, at: int, priority: int, then: Callable[[Event], None], value: int) -> None:
    """Let `then` be called at tick `at`, with an event about the user or row `value`."""
    event = Due(env, at, priority, value)
    assert event.callbacks is not None
    event.callbacks.append(then)


def front_end_delay(front_end: FrontEnd, workload: Workload) -> IntArray:
    """Ticks from the client's sending of each request to the engine's seeing it, where it waits for no API server."""
    return front_end.per_request + front_end.per_input_token * workload.input_len


def _next_turns(workload: Workload) -> memoryview:
    """For each row the row that waits for its answer, -1 for none."""
    waiting = np.flatnonzero((workload.arrival < 0) & (workload.parent >= 0))
    next_turn = np.full(len(workload), -1, dtype=np.int64)
    next_turn[workload.parent[waiting]] = waiting
    return next_turn.data
