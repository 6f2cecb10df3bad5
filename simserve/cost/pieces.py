"""Functions of the context in pieces that are linear: what a step of decodes costs, tick by tick."""

from collections.abc import Iterator

from simserve.cost.step import UNBOUNDED

NOTHING = [(UNBOUNDED, 0, 0)]
"""Pieces of what is zero everywhere."""


def common_pieces(
    full: list[tuple[int, int, int]], window: list[tuple[int, int, int]]
) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """(until, (base, slope), (base, slope)) of two functions given as (until, base, slope) pieces up to UNBOUNDED."""
    i = j = 0
    until = -1
    while until < UNBOUNDED:
        x, y = full[i], window[j]
        until = min(x[0], y[0])
        yield until, x[1:], y[1:]
        i += x[0] == until
        j += y[0] == until


def along(line: tuple[int, int, int], full: tuple[int, int], window: tuple[int, int]) -> tuple[int, int]:
    """(base, slope) in the context, of a `Line` whose attentions are themselves (base, slope) in it."""
    base, full_layers, window_layers = line
    return (
        base + full_layers * full[0] + window_layers * window[0],
        full_layers * full[1] + window_layers * window[1],
    )


def upper_envelope(lines: list[tuple[int, int]], start: int, until: int) -> list[tuple[int, tuple[int, int]]]:
    """(last context, line) of the greatest of some (base, slope) lines at each integer from `start` to `until`."""
    envelope: list[tuple[int, tuple[int, int]]] = []
    while start <= until:
        base, slope = top = max(lines, key=lambda line: (line[0] + line[1] * start, line[1]))
        stop = min([until, *((base - b) // (s - slope) for b, s in lines if s > slope)])
        envelope.append((stop, top))
        start = stop + 1
    return envelope
