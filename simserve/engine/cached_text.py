"""Stretches of cached text: which blocks of a stream of text are in the pool, who holds them, and which only wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simserve.engine.prefix import Branch

Piece = tuple["Run", int, int]
"""Blocks `[a, b)` of a run, as one request holds them."""


class Run:
    """Consecutive blocks of one branch, written by one request: one copy of each.

    `holds` counts the requests that hold a stretch `(a, b)`; `entries` are the stretches that nobody holds, waiting to
    be hit or evicted. A block of the run is alive if and only if a hold or an entry covers it: there is no third place
    to keep in step.
    """

    __slots__ = ("branch", "end", "entries", "holds", "start")

    def __init__(self, branch: Branch, start: int, end: int) -> None:
        self.branch = branch
        self.start = start
        self.end = end
        self.holds: dict[tuple[int, int], int] = {}
        self.entries: list[Entry] = []

    def alive_until(self, index: int) -> int:
        """End of the unbroken stretch of living blocks that begins at `index`; `index` itself if that block is gone."""
        before = -1
        while index != before:
            before = index
            for a, b in self.holds:
                if a <= index < b:
                    index = b
            for entry in self.entries:
                for a, b in entry.parts:
                    if a <= index < b:
                        index = b
        return index

    def num_free(self, start: int, end: int) -> int:
        """How many of the blocks `[start, end)` nobody holds."""
        free = 0
        for entry in self.entries:
            for a, b in entry.parts:
                free += max(0, min(b, end) - max(a, start))
        return free

    def hold(self, start: int, end: int) -> None:
        """One more request holds `[start, end)`."""
        self.holds[start, end] = self.holds.get((start, end), 0) + 1

    def let_go(self, start: int, end: int) -> list[tuple[int, int]]:
        """One request fewer holds `[start, end)`: the stretches that nobody holds any more, in ascending order."""
        count = self.holds[start, end] - 1
        if count:
            self.holds[start, end] = count
            return []
        del self.holds[start, end]
        freed = [(start, end)]
        for hold in self.holds:
            freed = [part for whole in freed for part in without(whole, hold)]
        return freed


class Entry:
    """Cached blocks that nobody holds, at one place in the order of eviction; eaten from the end of the last part.

    `run` is None for texts that nobody will ever look for: their blocks only wait for their turn to be evicted, and a
    number of them is all there is to know.
    """

    __slots__ = ("parts", "run")

    def __init__(self, run: Run | None, parts: list[tuple[int, int]]) -> None:
        self.run = run
        self.parts = parts


def without(whole: tuple[int, int], cut: tuple[int, int]) -> list[tuple[int, int]]:
    """The stretch `whole` without what it shares with `cut`: none, one or two stretches."""
    a, b = whole
    left, right = (a, min(b, cut[0])), (max(a, cut[1]), b)
    return [part for part in (left, right) if part[0] < part[1]] if cut[0] < b and a < cut[1] else [whole]
