"""The largest load that meets a condition which more load only makes worse: bracket by steps of a factor, then bisect.

Under common random numbers (one seed, the arrivals only scaled in time) the condition is near monotone in the load, so
that a bracket holds one crossing; where it holds several, one of them is found.
"""

import math
from collections.abc import Callable
from typing import NamedTuple


class NoCrossingError(Exception):
    """Every load that was tried meets the condition, or none does.

    `meets` tells which of the two, `load` is the last one tried.
    """

    def __init__(self, meets: bool, load: float) -> None:
        super().__init__(f"{'every' if meets else 'no'} load tried meets the condition, the last was {load:g}")
        self.meets = meets
        self.load = load


class Bracket(NamedTuple):
    """`low` meets the condition, `high` does not, and nothing was tried between them."""

    low: float
    high: float


def largest_load(
    meets: Callable[[float], bool],
    start: float,
    *,
    precision: float = 0.02,
    whole: bool = False,
    factor: float = 2.0,
    tries: int = 24,
) -> Bracket:
    """Bracket around the largest load that meets the condition.

    It ends when `high / low <= 1 + precision`, or for whole loads also when no whole number lies between them.

    Raises NoCrossingError when `tries` steps by `factor` bring no bracket, or a whole load of 1 does not meet.
    The smallest number that meets is `high` of the largest that does not.
    """
    low, high = _bracket(meets, max(1, round(start)) if whole else start, whole, factor, tries)
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        if whole:
            middle = round(middle)
            if not low < middle < high:
                middle = low + 1
            if middle == high:
                break
        if meets(middle):
            low = middle
        else:
            high = middle
    return Bracket(low, high)


def _bracket(meets: Callable[[float], bool], start: float, whole: bool, factor: float, tries: int) -> Bracket:
    """Loads `factor` apart (or the next whole number) with the crossing between them, walking from `start`."""
    up = meets(start)
    inner = start
    for _ in range(tries):
        outer = inner * factor if up else inner / factor
        if whole:
            outer = max(inner + 1, math.ceil(outer)) if up else min(inner - 1, math.floor(outer))
        if outer == 0:
            break
        if meets(outer) != up:
            return Bracket(inner, outer) if up else Bracket(outer, inner)
        inner = outer
    raise NoCrossingError(up, inner)
