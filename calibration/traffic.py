"""What reaches the real engine, and when: by the clock, or after the answers that users and chats wait for.

The rules are those of `simserve.cluster.clients`, for one engine and without SimPy, whose clock an executing engine
cannot follow. A replay of every live run shows that they are the same.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from simserve.cluster.clients import front_end_delay
from simserve.cluster.prompts import Prompts
from simserve.cost import FrontEnd
from simserve.engine.instant import ARRIVAL, USER
from simserve.engine.request import Request, request_of
from simserve.spec.errors import ScenarioError
from simserve.spec.scenario import Scenario
from simserve.workload.columns import Rows, Workload


class Traffic:
    """Requests of a workload in the order in which one engine gets them; times are ticks."""

    def __init__(self, scenario: Scenario, workload: Workload, front_end: FrontEnd) -> None:
        engine = scenario.engine
        self._workload = workload
        self._rows = Rows(workload)
        self._max_model_len = engine.max_model_len
        self._delivery = front_end.delivery
        self._delay = front_end_delay(front_end, workload).tolist()
        self._prompts = (
            Prompts(workload, engine.block_size, engine.max_model_len)
            if workload.shares_text and engine.enable_prefix_caching
            else None
        )
        waits = (workload.arrival < 0) & (workload.parent >= 0)
        self._next_turn = dict(zip(workload.parent[waits].tolist(), np.flatnonzero(waits).tolist(), strict=True))
        self._user: dict[int, int] = {}
        self._next_row = 0
        self._due: list[tuple[int, int]] = []
        """Heap of (tick, priority): users that are ready to send, and rows that reach the engine."""
        self.num_answered = 0
        for user in range(workload.users):
            heappush(self._due, (0, USER + user))
        for row in np.flatnonzero(workload.arrival >= 0).tolist():
            self._send(row, int(workload.arrival[row]))

    def next(self) -> int | None:
        """When something happens next, as far as is known; None for never."""
        return self._due[0][0] if self._due else None

    def until(self, now: int) -> Iterator[Request]:
        """Requests that reach the engine up to now and have not been asked for yet."""
        while self._due and self._due[0][0] <= now:
            at, priority = heappop(self._due)
            if priority < ARRIVAL:
                self._take_row(priority - USER, at)
            elif (request := self._admitted(priority - ARRIVAL, at)) is not None:
                yield request

    def answered(self, row: int, known: int) -> None:
        """The engine knows a row's last token: its client hears of it, and may send another."""
        self._respond(row, known + self._delivery)

    def _respond(self, row: int, at: int) -> None:
        self.num_answered += 1
        think = self._workload.think
        if row in self._user:
            heappush(self._due, (at + int(think[row]), USER + self._user.pop(row)))
        elif (turn := self._next_turn.get(row)) is not None:
            self._send(turn, at + int(think[turn]))

    def _take_row(self, user: int, at: int) -> None:
        if self._next_row < len(self._workload):
            row, self._next_row = self._next_row, self._next_row + 1
            self._user[row] = user
            self._send(row, at)

    def _send(self, row: int, at: int) -> None:
        heappush(self._due, (at + self._delay[row], ARRIVAL + row))

    def _admitted(self, row: int, at: int) -> Request | None:
        """The request of a row, its path set; None where its prompt leaves no room for a token."""
        arrival = self._rows.arrival(row)
        request = request_of(arrival, row, at, self._max_model_len)
        if request is None:
            if self._prompts is not None:
                self._prompts.pass_over(row)
            self._respond(row, at)
        elif self._prompts is not None:
            self._prompts.place(request, row, self._prompts.chain(arrival), 0)
        return request


def refuse_unanswered_turns(workload: Workload) -> None:
    """Turns of a chat that come by the clock may come before the answer that their prompt begins with.

    Raises:
        ScenarioError: the workload has such turns.
    """
    if np.any((workload.parent >= 0) & (workload.arrival >= 0)):
        raise ScenarioError(
            "live validation: workload.trace: turns of a chat at times of their own, which may come before the answer "
            "that they repeat; give them `think` in place of `arrival`, or leave `session` out"
        )
