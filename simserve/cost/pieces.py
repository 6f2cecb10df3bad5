"""Functions of the context in pieces that are linear: what a step of decodes costs, tick by tick."""

from collections.abc import Iterator, Sequence

from simserve.cost.decode_attention import UNBOUNDED, DecodePiece
from simserve.cost.launch import Line

Straight = tuple[int, int]
"""(base, slope) of a straight line."""


def common_pieces(functions: Sequence[list[DecodePiece]]) -> Iterator[tuple[int, list[Straight]]]:
    """(until, (base, slope) of each) of functions given as (until, base, slope) pieces up to UNBOUNDED."""
    at = [0] * len(functions)
    until = -1
    while until < UNBOUNDED:
        pieces = [pieces[place] for pieces, place in zip(functions, at, strict=True)]
        until = min(piece[0] for piece in pieces)
        yield until, [piece[1:] for piece in pieces]
        at = [place + (piece[0] == until) for place, piece in zip(at, pieces, strict=True)]


def along(line: Line[int], attention: Sequence[Straight]) -> Straight:
    """The same line in the context, in which the attention of each kind of layer is a line itself."""
    base, layers = line
    slope = 0
    for count, (more, rise) in zip(layers, attention, strict=True):
        base += count * more
        slope += count * rise
    return base, slope


def upper_envelope(lines: list[Straight], start: int, until: int) -> list[tuple[int, Straight]]:
    """(last context, line) of the greatest of some (base, slope) lines at each integer from `start` to `until`."""
    envelope: list[tuple[int, Straight]] = []
    while start <= until:
        base, slope = top = max(lines, key=lambda line: (line[0] + line[1] * start, line[1]))
        stop = min([until, *((base - b) // (s - slope) for b, s in lines if s > slope)])
        envelope.append((stop, top))
        start = stop + 1
    return envelope
