"""The block pool of `simserve.engine`, telling an observer what happens to blocks.

The pool counts blocks; whoever must know *which* blocks, listens. Four events are enough: how many blocks a running
request holds can be read from the request at any time, so that blocks merely handed out need no event.
"""

from typing import Protocol

from simserve.engine.block_pool import BlockPool, Hit, Piece, Run
from simserve.engine.prefix import Branch
from simserve.engine.request import Request


class PoolObserver(Protocol):
    """What a pool reports. Indices count the blocks of a text from its start; stretches are half open."""

    def hit(self, request: Request, pieces: list[Piece]) -> None:
        """An admitted request holds these cached stretches as its first blocks."""

    def entered(self, request: Request, run: Run, start: int, end: int) -> None:
        """Blocks `[start, end)` of a request, which holds them still, are in the cache from now on, as those of `run`."""

    def released(self, request: Request, num_cached: int) -> None:
        """A request holds nothing any more: its first `num_cached` blocks stay in the cache, all others are free."""

    def evicted(self, run: Run, start: int, end: int) -> None:
        """The blocks `[start, end)` of a run are free: nobody held them, and others need them."""


class ObservedBlockPool(BlockPool):
    """A block pool with one observer."""

    def __init__(
        self, num_gpu_blocks: int, block_size: int, enable_prefix_caching: bool, observer: PoolObserver
    ) -> None:
        super().__init__(num_gpu_blocks, block_size, enable_prefix_caching)
        self._observer = observer
        self._releasing: Request | None = None

    def touch(self, request: Request, hit: Hit) -> None:
        """The request holds what it hit."""
        super().touch(request, hit)
        self._observer.hit(request, hit.pieces)

    def release(self, request: Request, may_return: bool) -> None:
        """Free all blocks of a request."""
        num_cached = request.num_hashed_blocks if self.enable_prefix_caching else 0
        self._releasing = request
        super().release(request, may_return)
        self._releasing = None
        self._observer.released(request, num_cached)

    def _write(self, request: Request, branch: Branch, start: int, end: int) -> None:
        super()._write(request, branch, start, end)
        assert request.writing is not None
        self._observer.entered(request, request.writing, start, end)

    def _let_wait(self, run: Run, parts: list[tuple[int, int]]) -> None:
        if run.branch is None:
            assert self._releasing is not None
            self._observer.entered(self._releasing, run, run.start, run.end)
        super()._let_wait(run, parts)

    def _forget(self, run: Run, start: int, end: int) -> None:
        super()._forget(run, start, end)
        self._observer.evicted(run, start, end)
