"""Who sends requests, and when: traffic that comes by the clock, and traffic that waits for answers.

A client's clock is the engine's plus the front end: a request reaches the engine some time after it was sent, and a
token its client some time after the engine knew it.
"""

from collections.abc import Callable, Generator, Iterator
from heapq import heapify, heappop, heappush

import numpy as np
from simpy import Environment, Event

from simserve.cluster.cluster import Arrival, Cluster
from simserve.cost import FrontEnd
from simserve.engine.instant import ANNOUNCE, LET_IN, Due
from simserve.engine.request import Request
from simserve.workload.columns import IntArray, Workload

_ROWS_AT_ONCE = 4096
"""Rows turned from columns into Python numbers at a time."""

Progress = Callable[[float], None]


class OpenLoop:
    """Requests that arrive by the clock, whatever becomes of those before them: one SimPy process for all of them."""

    def __init__(self, env: Environment, workload: Workload, front_end: FrontEnd, cluster: Cluster) -> None:
        self._env = env
        self.arrival = workload.arrival
        self._workload = workload
        self._cluster = cluster
        self.progress: Progress | None = None
        self._reaches_engine = workload.arrival + front_end_delay(front_end, workload)
        env.process(self._send())

    def _send(self) -> Generator[Event, None, None]:
        env, submit = self._env, self._cluster.submit
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
            yield from zip(self._reaches_engine[rows].tolist(), arrivals_of(self._workload, rows), strict=True)


class Responsive:
    """Requests some of which wait for the answer to another one: users in a closed loop, and chats.

    In a closed loop each of `users` sends its next request `think` after its last answer; the users take the rows of the
    workload in turn. The next turn of a chat comes `think` after the answer to its parent. Requests that are sent, or
    reach the engine, at the same tick are taken in the order of users, and of rows.
    """

    def __init__(self, env: Environment, workload: Workload, front_end: FrontEnd, cluster: Cluster) -> None:
        self.arrival = workload.arrival.copy()
        self._env = env
        self._workload = workload
        self._delay = front_end_delay(front_end, workload)
        self._delivery = front_end.delivery
        self._cluster = cluster
        self.progress: Progress | None = None
        self._num_answered = 0
        self._next_turn = _next_turns(workload)
        self._user: dict[int, int] = {}
        self._next_row = 0
        self._ready_users: list[int] = list(range(workload.users))
        self._at_the_door: list[int] = []
        if workload.users:
            Due(env, 0, LET_IN).callbacks.append(self._give_rows)
        for row in np.flatnonzero(workload.arrival >= 0).tolist():
            self._send(row, int(workload.arrival[row]))

    def answered(self, request: Request) -> None:
        """The engine has finished a request: its client hears of it, and may send another."""
        row = int(request.id)
        self._num_answered += 1
        if self.progress is not None and self._num_answered % _ROWS_AT_ONCE == 0:
            self.progress(self._num_answered / len(self._workload))
        self._respond(row, int(self._env.now) + self._delivery)

    def _respond(self, row: int, answered: int) -> None:
        if row in self._user:
            user = self._user.pop(row)
            self._at(answered + int(self._workload.think[row]), lambda: self._user_ready(user))
        elif row in self._next_turn:
            turn = self._next_turn.pop(row)
            self._send(turn, answered + int(self._workload.think[turn]))

    def _user_ready(self, user: int) -> None:
        if not self._ready_users:
            self._due_now(self._give_rows)
        heappush(self._ready_users, user)

    def _give_rows(self, _: Event) -> None:
        users, self._ready_users = self._ready_users, []
        heapify(users)
        while users and self._next_row < len(self._workload):
            row, self._next_row = self._next_row, self._next_row + 1
            self._user[row] = heappop(users)
            self._send(row, int(self._env.now))

    def _send(self, row: int, at: int) -> None:
        self.arrival[row] = at
        self._at(at + int(self._delay[row]), lambda: self._reach_door(row))

    def _reach_door(self, row: int) -> None:
        if not self._at_the_door:
            self._due_now(self._let_in)
        heappush(self._at_the_door, row)

    def _let_in(self, _: Event) -> None:
        rows, self._at_the_door = sorted(self._at_the_door), []
        for row, arrival in zip(rows, arrivals_of(self._workload, np.array(rows)), strict=True):
            if not self._cluster.submit(arrival):
                self._respond(row, int(self._env.now))

    def _at(self, at: int, then: Callable[[], None]) -> None:
        if at == self._env.now:
            then()
        else:
            Due(self._env, at, ANNOUNCE).callbacks.append(lambda _: then())

    def _due_now(self, then: Callable[[Event], None]) -> None:
        Due(self._env, int(self._env.now), LET_IN).callbacks.append(then)


def front_end_delay(front_end: FrontEnd, workload: Workload) -> IntArray:
    """Ticks from the client's sending of each request to the engine's seeing it."""
    return front_end.per_request + front_end.per_input_token * workload.input_len


def arrivals_of(workload: Workload, rows: IntArray) -> Iterator[Arrival]:
    """Rows of a workload as the fleet takes them."""
    columns = (
        rows,
        workload.input_len[rows],
        workload.output_len[rows],
        workload.max_tokens[rows],
        workload.priority[rows],
        workload.prefix_group[rows],
        workload.prefix_len[rows],
    )
    return map(Arrival._make, zip(*(column.tolist() for column in columns), strict=True))


def _next_turns(workload: Workload) -> dict[int, int]:
    """Row -> the row that waits for its answer."""
    waiting = np.flatnonzero((workload.arrival < 0) & (workload.parent >= 0))
    return dict(zip(workload.parent[waiting].tolist(), waiting.tolist(), strict=True))
