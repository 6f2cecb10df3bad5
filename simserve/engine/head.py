"""What is remembered of the head of the queue, so that a step need not look at it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simserve.engine.request import Request


class Head:
    """The head of `waiting`: whether it was tried in vain, and what would have to change before it is tried again.

    `is_blocked`: nothing but a release or an arrival can admit it. `tried`: the version of the block pool at which
    admission ended last.
    """

    __slots__ = ("is_blocked", "tried", "version", "without_room")

    def __init__(self) -> None:
        self.is_blocked = False
        self.tried = -1
        self.without_room: Request | None = None
        """All of its text had no room in the pool at `version`, so there is none before the version changes."""
        self.version = -1

    def block_whole(self, request: Request, version: int) -> None:
        """All of its text has no room in the pool at this version."""
        self.without_room, self.version = request, version
        self.is_blocked = True
