"""Clients that do not wait for ever: an attempt that takes too long or is refused is given up, and made again.

The story of an attempt: it is sent, reaches the fleet when the front end has read it, is refused there or served, and
ends for its client with the answer, the refusal or the end of his patience. A client who gives up hangs up: the engine
hears of it as soon as the front end can tell it, and lets go of the request when it next decides (what it was answered
until then was in vain). After a pause the client sends it again, as often as he has retries.

A user in a closed loop goes on after his last attempt as after an answer. A chat is over: its later turns are
cancelled.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np
from simpy import Environment, Event

from simserve.cluster.admission import Refusal
from simserve.cluster.attempts import AttemptLog, attempt_columns, of_attempts, place_of_attempts
from simserve.cluster.clients import Responsive, at_tick, number_of
from simserve.cluster.fleet import Fleet
from simserve.cluster.records import Tables
from simserve.cost import FrontEnd
from simserve.engine.instant import ARRIVAL, GIVE_UP, HANG_UP, SEND, Due
from simserve.engine.request import Request
from simserve.spec.client import BackoffSpec, ClientSpec
from simserve.spec.result import COMPLETED, REJECTED, TIMED_OUT, UNFINISHED
from simserve.spec.ticks import to_ticks
from simserve.spec.workload import WorkloadSpec
from simserve.workload.columns import Workload

SOON = 1
"""Ticks: what a client does at the end of his patience reaches others a tick later at the earliest (`GIVE_UP`)."""


class Patience(NamedTuple):
    """How long a client waits for the whole answer and for the first token (None: for ever), and what then."""

    whole: int | None
    first_token: int | None
    retries: int
    backoff: BackoffSpec

    @classmethod
    def of(cls, spec: ClientSpec | None) -> "Patience":
        """That of a client; None is one who waits for ever and never sends again."""
        if spec is None:
            return cls(None, None, 0, BackoffSpec())
        limits = [None if limit is None else to_ticks(limit) for limit in (spec.timeout, spec.first_token_timeout)]
        return cls(limits[0], limits[1], spec.retries, spec.backoff)


def patience_of_classes(workload: WorkloadSpec) -> list[Patience]:
    """The patience of the clients of each class; none at all if all of them send once and wait for ever."""
    specs = [spec.client or workload.client for spec in workload.classes] or [workload.client]
    return [Patience.of(spec) for spec in specs] if any(specs) else []


class Impatient(Responsive):
    """Clients of one or more kinds; `patience` of each class of requests. The fleet knows that they send again."""

    def __init__(
        self,
        env: Environment,
        workload: Workload,
        front_end: FrontEnd,
        fleet: Fleet,
        *,
        patience: Sequence[Patience],
        jitter_key: int,
        num_api_servers: int = 1,
    ) -> None:
        self.log = AttemptLog(len(workload))
        self._patience = patience
        self._class_index = workload.class_index
        self._jitter_key = jitter_key
        self._hang_up_delay = max(front_end.per_request, SOON)
        self._live: dict[int, int] = {}
        """Attempts (name -> index) that no engine was told to forget and no client has an answer to."""
        limits = {limit for kind in patience for limit in kind[:2] if limit is not None}
        self._deadlines = {limit: Deadlines(env, limit, self._is_over, self._patience_ends) for limit in sorted(limits)}
        super().__init__(env, workload, front_end, fleet, num_api_servers)

    def tables(self, horizon: int) -> Tables:
        """What became of the requests, by their last attempts, and of all attempts."""
        place_of = place_of_attempts(self.log)
        columns = attempt_columns(self.log, self._workload, self._sent(horizon), self._fleet, place_of)
        return of_attempts(self.log, self._workload, columns, self._fleet.gap_columns(columns, place_of))

    # -- an attempt is sent --------------------------------------------------------------------------------------------

    def _send_by_the_clock(self) -> Generator[Event, None, None]:
        """Those rows whose arrival is known: they rise with the row."""
        rows = np.flatnonzero(self.arrival >= 0)
        for at, row in zip(self.arrival[rows].tolist(), rows.tolist(), strict=True):
            yield Due(self._env, at, SEND + row)
            self._attempt(row)

    def _send(self, row: int, at: int) -> None:
        self.arrival[row] = at
        at_tick(self._env, at, SEND + row, self._send_now, row)

    def _send_now(self, event: Event) -> None:
        self._attempt(number_of(event))

    def _attempt(self, name: int) -> None:
        row, now = name % self._size, int(self._env.now)
        index = self._live[name] = self.log.begin(name, now)
        patience = self._patience[self._class_index[row]]
        for limit in patience[:2]:
            if limit is not None:
                self._deadlines[limit].add(index, now)
        if self._door is None:
            at_tick(self._env, now + self._delay[row], ARRIVAL + row, self._arrive, name)
        else:
            self._door.enter(name)

    def _arrive(self, event: Event) -> None:
        name = number_of(event)
        index = self._live.get(name)
        if index is None:
            return  # he has hung up before it was read
        now = int(self._env.now)
        self.log.reached[index] = now
        if not self._fleet.submit(self._rows.arrival(name % self._size), name):
            refusal = self._fleet.refusals[-1]
            self.log.codes[index] = refusal
            if self._is_over(index):
                del self._live[name]
            else:
                self._fail(index, REJECTED, now, again=refusal is not Refusal.TOO_LONG)

    def _is_over(self, index: int) -> bool:
        return self.log.statuses[index] != UNFINISHED

    # -- it ends -------------------------------------------------------------------------------------------------------

    def answered(self, request: Request, known: int) -> None:
        """The engine knows at tick `known` that an attempt is finished. If its client is still there when the last
        token reaches him, and had the first one in time, he is content.
        """
        name = int(request.id)
        index = self._live.get(name)
        if index is None or self._is_over(index):
            return
        log, row = self.log, name % self._size
        patience, waited = self._patience[self._class_index[row]], self._delivery - log.sent[index]
        if patience.whole is not None and known + waited > patience.whole:
            return
        if patience.first_token is not None and request.first_token + waited > patience.first_token:
            return
        at = known + self._delivery
        log.end(index, COMPLETED, at)
        log.outcomes[row] = COMPLETED
        del self._live[name]
        self._fleet.answered(name)
        self._fleet.forget(row)
        self._note_progress()
        self._respond(row, at)

    def _patience_ends(self, index: int) -> None:
        """A client has waited for one of his limits, and does not have the whole answer."""
        log, now = self.log, int(self._env.now)
        name = log.names[index]
        patience = self._patience[self._class_index[name % self._size]]
        if now - log.sent[index] == patience.first_token and self._has_first_token(name, now):
            return
        at_tick(self._env, now + self._hang_up_delay, HANG_UP + name % self._size, self._hang_up, name)
        self._fail(index, TIMED_OUT, now, again=True)

    def _has_first_token(self, name: int, now: int) -> bool:
        known = self._fleet.first_token(name)
        return known is not None and known + self._delivery <= now

    def _hang_up(self, event: Event) -> None:
        """The engine hears of it, if it ever heard of the attempt."""
        name = number_of(event)
        self._live.pop(name, None)
        self._fleet.abandon(name)

    def _fail(self, index: int, status: int, now: int, again: bool) -> None:
        """An attempt has failed: make another, or give up."""
        log = self.log
        log.end(index, status, now)
        number, row = divmod(log.names[index], self._size)
        if status == REJECTED:
            del self._live[log.names[index]]
        patience = self._patience[self._class_index[row]]
        if again and number < patience.retries:
            pause = self._pause(patience.backoff, row, number)
            at_tick(self._env, now + max(pause, SOON), SEND + row, self._send_now, log.names[index] + self._size)
        else:
            log.outcomes[row] = status
            self._fleet.forget(row)
            self._go_on(row, now + SOON)

    def _go_on(self, row: int, at: int) -> None:
        """After the last attempt of a request: a user turns to his next one, a chat is over."""
        self._note_progress()
        if row in self._user:
            self._respond(row, at)
            return
        turn = self._next_turn[row]
        while turn >= 0:
            self.log.cancel(turn)
            turn = self._next_turn[turn]

    def _pause(self, backoff: BackoffSpec, row: int, number: int) -> int:
        """Ticks before the next attempt; drawn by row and number, so that no other draw depends on it."""
        pause = min(backoff.initial * backoff.factor**number, backoff.max)
        drawn = np.random.Generator(np.random.Philox(key=self._jitter_key, counter=[row, number, 0, 0])).random()
        return to_ticks(pause * (1 - backoff.jitter * drawn))


class Deadlines:
    """Attempts in the order in which one and the same patience ends; one event at a time for all of them."""

    def __init__(
        self, env: Environment, limit: int, is_over: Callable[[int], bool], then: Callable[[int], None]
    ) -> None:
        self._env = env
        self._limit = limit
        self._is_over = is_over
        self._then = then
        self._queue: deque[tuple[int, int]] = deque()
        """Tick and attempt."""
        self._is_armed = False

    def add(self, index: int, sent: int) -> None:
        """The patience with an attempt sent now begins."""
        self._queue.append((sent + self._limit, index))
        if not self._is_armed:
            self._arm()

    def _arm(self) -> None:
        """Be called for the first attempt that is not over."""
        queue = self._queue
        while queue and self._is_over(queue[0][1]):
            queue.popleft()
        self._is_armed = bool(queue)
        if queue:
            at_tick(self._env, queue[0][0], GIVE_UP, self._ring, 0)

    def _ring(self, event: Event) -> None:  # noqa: ARG002
        queue, now = self._queue, self._env.now
        while queue and queue[0][0] <= now:
            index = queue.popleft()[1]
            if not self._is_over(index):
                self._then(index)
        self._arm()
