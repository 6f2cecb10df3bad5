"""Attention of one layer over the decodes of a step: a function of their context, linear piece by piece.

Pieces are what lets the engine add up a run of steps in closed form. From a data sheet they are a floor and a line,
from a table the straight lines between measured contexts.
"""

from bisect import bisect_left
from typing import NamedTuple, Protocol

UNBOUNDED = 2**62
"""More tokens of context than any batch has."""

DecodePiece = tuple[int, int, int]
"""(until, base, slope): base + slope * context ticks up to and including `until` tokens."""


class DecodePieces(Protocol):
    """Where pieces come from."""

    def pieces(self, num_decodes: int) -> list[DecodePiece]:
        """Pieces of so many sequences over all contexts, the last one without end; they never fall."""
        ...


class FloorAndLine(NamedTuple):
    """The longer of a floor and, for each sequence and each token of its context, so many ticks."""

    floor: int
    per_sequence: int
    slope: int

    def pieces(self, num_decodes: int) -> list[DecodePiece]:
        """Pieces of so many sequences."""
        floor, base, slope = self.floor, self.per_sequence * num_decodes, self.slope
        if not slope:
            return [(UNBOUNDED, max(floor, base), 0)]
        if base >= floor:
            return [(UNBOUNDED, base, slope)]
        return [((floor - base) // slope, floor, 0), (UNBOUNDED, base, slope)]


class DecodeTime:
    """Ticks over decodes; in a window layer no sequence reads more than `window` tokens."""

    def __init__(self, source: DecodePieces, window: int | None) -> None:
        self._source = source
        self._window = window
        self._compiled: dict[int, tuple[list[int], list[DecodePiece]]] = {}

    def pieces(self, num_decodes: int) -> list[DecodePiece]:
        """`ticks` as pieces, the last one without end."""
        return (self._compiled.get(num_decodes) or self._compile(num_decodes))[1]

    def ticks(self, num_decodes: int, context: int) -> int:
        """Ticks over sequences that together read `context` tokens."""
        ends, pieces = self._compiled.get(num_decodes) or self._compile(num_decodes)
        _, base, slope = pieces[bisect_left(ends, context)]
        return base + slope * context

    def _compile(self, num_decodes: int) -> tuple[list[int], list[DecodePiece]]:
        pieces = self._source.pieces(num_decodes)
        if self._window is not None:
            pieces = _level_from(num_decodes * self._window, pieces)
        compiled = self._compiled[num_decodes] = [until for until, _, _ in pieces], pieces
        return compiled


def _level_from(top: int, pieces: list[DecodePiece]) -> list[DecodePiece]:
    """The same pieces, level from `top` on."""
    kept: list[DecodePiece] = []
    for until, base, slope in pieces:
        if until >= top:
            rising = [(top, base, slope)] if slope else []
            return [*kept, *rising, (UNBOUNDED, base + slope * top, 0)]
        kept.append((until, base, slope))
    return kept
