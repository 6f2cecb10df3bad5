"""How many requests each of some replicas has, counted as they come and go: to ask costs the same for any fleet."""

from heapq import heappop, heappush


class Census:
    """Counts of the replicas that have joined, which tell it of their requests, by place. A request that ends at tick t
    counts until t is over.
    """

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._finishes: list[tuple[int, int]] = []
        """Heap of (tick, place) of requests that still count: replicas know ahead when they finish."""

    def join(self) -> int:
        """The place of one more replica, which nobody else gets."""
        self._counts.append(0)
        return len(self._counts) - 1

    def add(self, place: int, count: int) -> None:
        """So many requests more, or fewer, at the replica in this place."""
        self._counts[place] += count

    def finishes(self, place: int, at: int) -> None:
        """A request of the replica in this place finishes at tick `at`, now or later."""
        heappush(self._finishes, (at, place))

    def counts(self, now: int) -> list[int]:
        """Requests that each replica has received and not finished before tick `now`; `now` never falls."""
        finishes, counts = self._finishes, self._counts
        while finishes and finishes[0][0] < now:
            counts[heappop(finishes)[1]] -= 1
        return counts
