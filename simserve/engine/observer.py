"""Who may watch a block pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.prefix import Piece, Run
    from simserve.engine.request import Request


class PoolObserver(Protocol):
    """Told what becomes of cached text, for those who need block numbers: the pool itself only counts.

    What a running request holds beyond its cached text can be read from it at any time. With an observer all text keeps
    its place in the trie, so that each block has a name: a run and an index.
    """

    def hit(self, request: Request, pieces: Sequence[Piece]) -> None:
        """The request holds cached blocks that it looked up."""

    def entered(self, request: Request, run: Run, start: int, end: int) -> None:
        """The request's blocks `[start, end)` are cached now, as those of `run`."""

    def released(self, request: Request, num_cached_blocks: int) -> None:
        """The request holds nothing any more; its first blocks stay cached, the others are anyone's."""

    def evicted(self, run: Run, start: int, end: int) -> None:
        """The blocks `[start, end)` of a run are anyone's."""
