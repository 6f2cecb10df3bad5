"""Block numbers: which blocks of the KV cache hold the tokens of which request.

The pool of `simserve.engine` keeps counts. The table observes it and gives every block a number: free ones stand in a
list, those of a running request in a row of a matrix, those of cached text under their run. A row is brought up to the
number of blocks that its request holds when a step is about to be executed, or when its blocks enter the cache; until
then the list of free ones holds what the pool has handed out already, so it is never too short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from simserve.engine.prefix import Piece, Run
    from simserve.engine.request import Request

NULL_BLOCK = 0
"""Never handed out (vLLM's null block); what pads a batch is written there."""


class BlockTable:
    """The `PoolObserver` of one pool.

    `numbers[seat_of[request]]` are the block numbers of a running request, of which the first `num_blocks[seat]` are
    valid. `num_computed[seat]` tokens of it have been executed, not only scheduled.
    """

    def __init__(self, num_gpu_blocks: int, block_size: int, max_num_seqs: int, max_model_len: int) -> None:
        self.block_size = block_size
        self._num_gpu_blocks = num_gpu_blocks
        self.numbers: NDArray[np.int32] = np.zeros((max_num_seqs, -(-max_model_len // block_size)), dtype=np.int32)
        self.num_blocks = [0] * max_num_seqs
        self.num_computed = [0] * max_num_seqs
        self.seat_of: dict[Request, int] = {}
        self.stale: set[int] = set()
        """Cached blocks that were never computed: their request was preempted in the very step that had scheduled them,
        as only `scheduling_policy: priority` does."""
        self._free = list(range(num_gpu_blocks - 1, NULL_BLOCK, -1))
        self._free_seats = list(range(max_num_seqs - 1, -1, -1))
        self._runs: dict[Run, dict[int, int]] = {}

    @property
    def num_free(self) -> int:
        """Blocks without an owner and without cached text; once all rows are up to date, the pool's `num_unhashed`."""
        return len(self._free)

    # -- what the engine asks ------------------------------------------------------------------------------------------

    def grow(self, request: Request, num_blocks: int) -> int:
        """Bring a running request's row up to `num_blocks`; returns its seat."""
        seat = self._seat(request)
        held = self.num_blocks[seat]
        if num_blocks > held:
            for index in range(held, num_blocks):
                self.numbers[seat, index] = self._free.pop()
            self.num_blocks[seat] = num_blocks
        return seat

    def row(self, request: Request) -> NDArray[np.int32]:
        """Block numbers of a running request."""
        seat = self.seat_of[request]
        return self.numbers[seat, : self.num_blocks[seat]]

    def computed(self, request: Request, start: int, end: int) -> None:
        """The KV of the tokens `[start, end)` of a running request has been written."""
        seat = self.seat_of[request]
        self.num_computed[seat] = end
        if self.stale:
            size = self.block_size
            self.stale.difference_update(self.numbers[seat, start // size : end // size].tolist())

    def num_valid(self, request: Request, num_tokens: int) -> int:
        """How many of a request's first `num_tokens` tokens have KV indeed: fewer where a cached block is stale."""
        if self.stale:
            for index, number in enumerate(self.row(request)[: num_tokens // self.block_size].tolist()):
                if number in self.stale:
                    return index * self.block_size
        return num_tokens

    def _seat(self, request: Request) -> int:
        seat = self.seat_of.get(request)
        if seat is None:
            seat = self.seat_of[request] = self._free_seats.pop()
            self.num_blocks[seat] = self.num_computed[seat] = 0
        return seat

    # -- what the pool reports -----------------------------------------------------------------------------------------

    def hit(self, request: Request, pieces: Sequence[Piece]) -> None:
        """An admitted request begins with cached blocks."""
        seat = self._seat(request)
        for run, start, end in pieces:
            numbers = self._runs[run]
            for index in range(start, end):
                self.numbers[seat, index] = numbers[index]
            self.num_blocks[seat] = end

    def entered(self, request: Request, run: Run, start: int, end: int) -> None:
        """Blocks of a request are cached: what is in them outlives it."""
        seat = self.grow(request, end)
        numbers = self.numbers[seat, start:end].tolist()
        self._runs.setdefault(run, {}).update(zip(range(start, end), numbers, strict=True))

    def released(self, request: Request, num_cached_blocks: int) -> None:
        """A request is finished or preempted."""
        seat = self.seat_of.pop(request, None)
        if seat is None:
            return
        row = self.numbers[seat, : self.num_blocks[seat]].tolist()
        self._free += row[num_cached_blocks:]
        self.stale.update(row[self.num_computed[seat] // self.block_size : num_cached_blocks])
        self._free_seats.append(seat)

    def evicted(self, run: Run, start: int, end: int) -> None:
        """Cached text is lost."""
        numbers = self._runs[run]
        freed = [numbers.pop(index) for index in range(start, end)]
        if not numbers:
            del self._runs[run]
        self._free += freed
        self.stale.difference_update(freed)

    # -- for laws ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError unless every block is in one place: free, in the cache, or private to one request."""
        cached = [number for numbers in self._runs.values() for number in numbers.values()]
        in_cache = set(cached)
        held = [number for request in self.seat_of for number in self.row(request).tolist()]
        private = [number for number in held if number not in in_cache]
        everywhere = sorted([*self._free, *cached, *private])
        assert everywhere == list(range(NULL_BLOCK + 1, self._num_gpu_blocks)), "a block has two places, or none"
        assert self.stale <= in_cache, "a stale block is not cached"
