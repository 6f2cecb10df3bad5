"""What a prompt shares with others: paths through a trie whose nodes are streams of text.

A stream is an endless sequence of its own tokens: one request's own text (its part of the prompt followed by its
answer), or the system prompt of a group. The tokens before a block are fixed by the node that holds the block's last
token, so `(branch, i)` *is* the hash of block `i`, and no token is ever stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simserve.engine.cached_text import Run
    from simserve.engine.request import Request

ENDLESS = 1 << 62
"""End of the last branch of a path: a request's own text goes on for ever."""

Path = tuple[tuple["Branch", int], ...]
"""`((branch, end_block), ..., (own branch, ENDLESS))`: block `i` belongs to the first entry whose end is beyond `i`."""


class Branch:
    """A node of the trie: one stream of text, and the cached blocks that hold it.

    `runs` are the cached stretches, oldest first. `copies` names, for a block index of which a second copy exists, the
    runs that hold one, oldest first (vLLM does not de-duplicate; a look-up finds the oldest). `shared` tells that a
    request other than `owner` may look for blocks here, so they must be entered at the step that fills them; a private
    branch is entered when its owner releases it.
    """

    __slots__ = ("copies", "owner", "runs", "shared")

    def __init__(self, owner: Request | None = None) -> None:
        self.owner = owner
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
