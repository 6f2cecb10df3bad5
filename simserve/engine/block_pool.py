"""The KV block pool of one replica, with vLLM's prefix cache and its order of eviction, and no object per block.

vLLM keeps one queue of free blocks. Two facts, proven on recorded traces, make it small: the queue always reads [blocks
without a hash][hashed blocks, least recently released first], and blocks without a hash are interchangeable. So a
*count* stands for the first part and an ordered set of `Entry`s, stretches of cached text, for the second. A request
releases its blocks tail first, so an entry is eaten from its end and what is left of a cached text is a prefix.

Source of the rules: vLLM 0.32, v1/core/block_pool.py and v1/core/kv_cache_manager.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from simserve.engine.prefix import Branch, Entry, Piece, Run, without
from simserve.engine.request import NO_PIECES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simserve.engine.observer import PoolObserver
    from simserve.engine.request import Request


class Hit:
    """What a look-up found: the pieces of a prompt's cached prefix, how many blocks they are, and how many of those
    nobody holds.
    """

    __slots__ = ("num_blocks", "num_free", "pieces")

    def __init__(self, pieces: list[Piece], num_blocks: int, num_free: int) -> None:
        self.pieces = pieces
        self.num_blocks = num_blocks
        self.num_free = num_free


MISS = Hit([], 0, 0)


class BlockPool:
    """KV blocks of one replica: how many are free, what is cached in them, and who may evict whom.

    `num_gpu_blocks` counts vLLM's null block, which is never handed out. `version` grows whenever a request that did
    not fit might fit now (something was released) or might hit more (something was entered).
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        block_size: int,
        enable_prefix_caching: bool = True,
        observer: PoolObserver | None = None,
    ) -> None:
        self.num_blocks = num_gpu_blocks - 1
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.num_free = self.num_blocks
        self.num_unhashed = self.num_blocks
        self.num_entered = 0
        self.version = 0
        self._eviction_order: OrderedDict[Entry, None] = OrderedDict()
        self._nameless: Entry | None = None
        """The last entry, if it stands for text that nobody will look for: any more of it can join."""
        self._observer = observer

    @property
    def usage(self) -> float:
        """Share of the blocks that are held, 0 to 1 (vLLM's `kv_cache_usage_perc`)."""
        return 1 - self.num_free / self.num_blocks

    # -- allocation ----------------------------------------------------------------------------------------------------

    def take(self, num_blocks: int) -> None:
        """Hand out blocks: those without a hash first, then cached ones, least recently released first. The caller has
        checked `num_free`.
        """
        assert num_blocks <= self.num_free, "more blocks taken than are free"
        self.num_free -= num_blocks
        unhashed = self.num_unhashed
        if num_blocks <= unhashed:
            self.num_unhashed = unhashed - num_blocks
        else:
            self.num_unhashed = 0
            self._evict(num_blocks - unhashed)

    def _evict(self, num_blocks: int) -> None:
        order = self._eviction_order
        self.num_entered -= num_blocks
        while num_blocks:
            entry = next(iter(order))
            parts, run = entry.parts, entry.run
            start, end = parts[-1]
            cut = end - num_blocks
            if cut > start:
                parts[-1] = (start, cut)
                num_blocks = 0
            else:
                cut = start
                parts.pop()
                num_blocks -= end - start
            if run is not None:
                self._forget(run, cut, end)
            if not parts:
                del order[entry]
                self._drop(entry)

    def _forget(self, run: Run, start: int, end: int) -> None:
        """The blocks `[start, end)` of a run lose their hash; other copies of them keep it."""
        copies = run.branch.copies
        if copies:
            for index in range(start, end):
                if index in copies:
                    self.num_entered += 1
                    copies[index].remove(run)
                    if len(copies[index]) == 1:
                        del copies[index]
        if self._observer is not None:
            self._observer.evicted(run, start, end)

    def _drop(self, entry: Entry) -> None:
        """An entry is empty: forget it, and its run if nothing of that is left."""
        run = entry.run
        if run is None:
            if entry is self._nameless:
                self._nameless = None
            return
        run.entries.remove(entry)
        if not run.entries and not run.holds:
            run.branch.runs.remove(run)

    # -- the prefix cache ----------------------------------------------------------------------------------------------

    def lookup(self, request: Request) -> Hit:
        """The longest cached prefix of a request, in whole blocks; its last token is always computed anew."""
        path = request.path
        if not path or not self.enable_prefix_caching:
            return MISS
        limit = (request.num_tokens - 1) // self.block_size
        pieces: list[Piece] = []
        index = num_free = 0
        for branch, branch_end in path:
            end = min(branch_end, limit)
            while index < end:
                run, stop = self._find(branch, index)
                if run is None:
                    return Hit(pieces, index, num_free)
                stop = min(stop, end)
                pieces.append((run, index, stop))
                if run.entries:
                    num_free += run.num_free(index, stop)
                index = stop
        return Hit(pieces, index, num_free)

    @staticmethod
    def _find(branch: Branch, index: int) -> tuple[Run | None, int]:
        """The run with the oldest copy of a block, and where the stretch ends up to which it is the one to take."""
        copies = branch.copies
        if copies and index in copies:
            return copies[index][0], index + 1
        for run in branch.runs:
            stop = run.alive_until(index)
            if stop > index:
                if copies:
                    stop = min((other for other in copies if index < other < stop), default=stop)
                return run, stop
        return None, index

    def touch(self, request: Request, hit: Hit) -> None:
        """The request holds what it hit: taken out of the order of eviction where nobody held it."""
        for run, start, end in hit.pieces:
            if run.entries:
                self._take_back(run, start, end)
            run.hold(start, end)
        self.num_free -= hit.num_free
        request.pieces = hit.pieces
        request.num_entered_blocks = request.num_hashed_blocks = hit.num_blocks
        if self._observer is not None:
            self._observer.hit(request, hit.pieces)

    def _take_back(self, run: Run, start: int, end: int) -> None:
        """The blocks `[start, end)` of a run no longer wait to be evicted, where they did."""
        for entry in list(run.entries):
            entry.parts = [part for whole in entry.parts for part in without(whole, (start, end))]
            if not entry.parts:
                del self._eviction_order[entry]
                run.entries.remove(entry)

    def enter(self, request: Request, num_blocks: int) -> None:
        """The request's first `num_blocks` blocks are full: enter in the cache those that are not yet there."""
        start = request.num_entered_blocks
        if num_blocks <= start or not self.enable_prefix_caching:
            return
        assert request.path, "only text that has a place in the trie can be entered"
        self.version += 1
        for branch, end in request.path:
            if end <= start:
                continue
            stop = min(end, num_blocks)
            self._write(request, branch, start, stop)
            start = stop
            if start == num_blocks:
                break
        request.num_entered_blocks = num_blocks

    def enter_shared(self, request: Request, num_blocks: int) -> None:
        """Like `enter`, but leaves out the request's own text while nobody else may look for it."""
        path = request.path
        if not path:
            return
        if not path[-1][0].shared:
            num_blocks = min(num_blocks, path[-2][1]) if len(path) > 1 else 0
        self.enter(request, num_blocks)

    def _write(self, request: Request, branch: Branch, start: int, end: int) -> None:
        self._note_copies(branch, start, end, request.writing)
        run = request.writing
        if run is not None and run.branch is branch and run.end == start:
            run.let_go(run.start, start)
            run.end = end
            request.pieces[-1] = (run, run.start, end)
        else:
            run = request.writing = Run(branch, start, end)
            branch.runs.append(run)
            request.pieces = [*request.pieces, (run, start, end)]
        run.hold(run.start, end)
        self.num_entered += end - start
        if branch.copies:
            for index in range(start, end):
                if index in branch.copies:
                    branch.copies[index].append(run)
                    self.num_entered -= 1
        if self._observer is not None:
            self._observer.entered(request, run, start, end)

    @staticmethod
    def _note_copies(branch: Branch, start: int, end: int, writing: Run | None) -> None:
        """Before a stretch is written: note for each block of it which is cached already by what run."""
        for run in branch.runs:
            if run is writing and run.end <= start:
                continue
            for index in range(max(start, run.start), min(end, run.end)):
                if run.alive_until(index) > index:
                    if branch.copies is None:
                        branch.copies = {}
                    if index not in branch.copies:
                        branch.copies[index] = [run]

    # -- release -------------------------------------------------------------------------------------------------------

    def release(self, request: Request, may_return: bool) -> None:
        """Free all blocks of a request, tail first: those without a hash for anyone to take, the others to be evicted
        last.

        `may_return` tells that the request itself may look for its blocks again (it is preempted, not finished).
        """
        self.version += 1
        num_hashed = request.num_hashed_blocks if self.enable_prefix_caching else 0
        num_unhashed = request.num_blocks - num_hashed
        self.num_unhashed += num_unhashed
        self.num_free += num_unhashed
        num_entered = request.num_entered_blocks
        if num_hashed > num_entered:
            if may_return or request.is_awaited or self._observer is not None or not _is_private(request, num_entered):
                request.own_branch()
                self.enter(request, num_hashed)
            else:
                self._let_wait_nameless(num_hashed - num_entered)
        if request.pieces:
            pieces = self._joined(request.pieces) if len(request.pieces) > 1 else request.pieces
            for run, start, end in reversed(pieces):
                freed = run.let_go(start, end)
                if freed:
                    self._let_wait(run, freed)
            request.pieces = NO_PIECES
            request.writing = None
        request.num_blocks = request.num_hashed_blocks = request.num_entered_blocks = 0
        if self._observer is not None:
            self._observer.released(request, num_hashed)

    def _joined(self, pieces: list[Piece]) -> list[Piece]:
        """The same pieces, with the last ones made one run where they are one text that nobody else holds a part of.

        They would follow each other in the order of eviction anyway. A chat stays one run however many turns it has.
        """
        last, _, end = pieces[-1]
        branch, first = last.branch, len(pieces)
        if branch.copies or self._observer is not None:
            return pieces
        for run, start, stop in reversed(pieces):
            if run.branch is not branch or run.entries or run.holds != {(start, stop): 1}:
                break
            first -= 1
        if len(pieces) - first < 2:
            return pieces
        for run, _, _ in pieces[first:]:
            branch.runs.remove(run)
        start = pieces[first][1]
        whole = Run(branch, start, end)
        whole.hold(start, end)
        branch.runs.append(whole)
        return [*pieces[:first], (whole, start, end)]

    def _let_wait(self, run: Run, parts: list[tuple[int, int]]) -> None:
        """Nobody holds these blocks of a run any more: they are last in the order of eviction."""
        entry = Entry(run, parts)
        run.entries.append(entry)
        self._eviction_order[entry] = None
        self._nameless = None
        for start, end in parts:
            self.num_free += end - start

    def _let_wait_nameless(self, num_blocks: int) -> None:
        """Cached text that nobody will ever look for."""
        self.num_entered += num_blocks
        self.num_free += num_blocks
        entry = self._nameless
        if entry is None:
            entry = self._nameless = Entry(None, [(0, num_blocks)])
            self._eviction_order[entry] = None
        else:
            entry.parts[-1] = (0, entry.parts[-1][1] + num_blocks)

    # -- for laws and traces -------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[Entry]:
        """What nobody holds, in the order in which it would be evicted."""
        return iter(self._eviction_order)

    def check(self) -> None:
        """Raise AssertionError if the counts disagree with one another."""
        hashed = sum(b - a for entry in self._eviction_order for a, b in entry.parts)
        assert 0 <= self.num_unhashed <= self.num_free <= self.num_blocks, "free blocks out of range"
        assert self.num_free == self.num_unhashed + hashed, "free blocks are neither hashed nor unhashed"


def _is_private(request: Request, start: int) -> bool:
    """Whether the blocks of a request from `start` on are its own text, of which nothing is cached yet."""
    path = request.path
    return not path or ((len(path) == 1 or path[-2][1] <= start) and not path[-1][0].runs)
