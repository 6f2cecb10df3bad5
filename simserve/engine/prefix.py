"""What a prompt shares with others: paths through a trie whose nodes are streams of text.

A stream is an endless sequence of its own tokens: one request's own text (its part of the prompt followed by its
answer), or the system prompt of a group. The tokens before a block are fixed by the node that holds the block's last
token, so `(branch, i)` *is* the hash of block `i`, and no token is ever stored. What is cached of a stream are its
`Run`s: which of its blocks are in the pool, who holds them, and which only wait to be hit or evicted.
"""

from __future__ import annotations

ENDLESS = 1 << 62
"""End of the last branch of a path: a request's own text goes on for ever."""

Path = tuple[tuple["Branch", int], ...]
"""`((branch, end_block), ..., (own branch, ENDLESS))`: block `i` belongs to the first entry whose end is beyond `i`."""

Piece = tuple["Run", int, int]
"""Blocks `[a, b)` of a run, as one request holds them."""


class Branch:
    """A node of the trie: one stream of text, and the cached blocks that hold it.

    `runs` are the cached stretches, oldest first. `copies` names, for a block index of which a second copy exists, the
    runs that hold one, oldest first (vLLM does not de-duplicate; a look-up finds the oldest). `shared` tells that a
    request other than `owner` may look for blocks here, so they must be entered at the step that fills them; a private
    branch is entered when its owner releases it.
    """

    __slots__ = ("copies", "owner", "runs", "shared")

    def __init__(self, owner: object | None = None) -> None:
        self.owner = owner
        """The request whose own text it is, while that is here."""
        self.shared = owner is None
        self.runs: list[Run] = []
        self.copies: dict[int, list[Run]] | None = None


def extend(path: Path, num_tokens: int, block_size: int, branch: Branch) -> Path:
    """The path that follows `path` for its first `num_tokens` tokens and goes on in `branch`.

    A block belongs to the branch of its *last* token, hence the division that rounds down.
    """
    end = num_tokens // block_size
    head = []
    for node, stop in path:
        if stop >= end:
            head.append((node, end))
            break
        head.append((node, stop))
    return (*head, (branch, ENDLESS))


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
