"""How a layer holds one request in KV blocks."""

from dataclasses import dataclass
from math import ceil
from typing import Protocol


class Held(Protocol):
    """One way of holding requests. Layers for which it is equal may share blocks: it is hashable."""

    def blocks(self, tokens: int, block_size: int, in_flight: int) -> int:
        """Most blocks that a request of `tokens` tokens holds in a layer, `in_flight` of them being under way."""
        ...

    def sent_blocks(self, tokens: int, block_size: int, cached_blocks: int) -> int:
        """Blocks of a layer that another replica needs to go on after `tokens` tokens, if it has the first blocks."""
        ...


@dataclass(frozen=True)
class HeldWhole:
    """A layer keeps all tokens."""

    def blocks(self, tokens: int, block_size: int, in_flight: int) -> int:  # noqa: ARG002
        """Blocks of all tokens."""
        return ceil(tokens / block_size)

    def sent_blocks(self, tokens: int, block_size: int, cached_blocks: int) -> int:
        """All blocks but those that are there."""
        return ceil(tokens / block_size) - cached_blocks


WHOLE = HeldWhole()
