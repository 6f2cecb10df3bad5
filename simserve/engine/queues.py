"""The two orders in which requests wait: first come first served, and by priority."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simserve.engine.request import Request

FcfsQueue = deque
"""First come first served: a preempted request goes back to the front."""


class PriorityQueue:
    """By (priority, arrival, id), smaller first, whether new or preempted; the methods of a deque that a scheduler
    uses.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int | str, Request]] = []
        self._gone: set[int] = set()

    def append(self, request: Request) -> None:
        """Let a request wait."""
        heappush(self._heap, (request.priority, request.arrival, request.id, request))

    def appendleft(self, request: Request) -> None:
        """Let a preempted request wait: its place does not depend on when it came back."""
        self.append(request)

    def __getitem__(self, index: int) -> Request:
        """The request to be admitted next; only index 0 exists."""
        if index:
            raise IndexError(index)
        self._discard_gone()
        return self._heap[0][3]

    def popleft(self) -> Request:
        """Take out the request to be admitted next."""
        self._discard_gone()
        return heappop(self._heap)[3]

    def remove(self, request: Request) -> None:
        """Take out a request from anywhere in the queue."""
        self._gone.add(id(request))

    def _discard_gone(self) -> None:
        while self._gone and id(self._heap[0][3]) in self._gone:
            self._gone.remove(id(heappop(self._heap)[3]))

    def __len__(self) -> int:
        return len(self._heap) - len(self._gone)

    def __iter__(self) -> Iterator[Request]:
        return (item[3] for item in sorted(self._heap) if id(item[3]) not in self._gone)


QUEUES = {"fcfs": FcfsQueue, "priority": PriorityQueue}
