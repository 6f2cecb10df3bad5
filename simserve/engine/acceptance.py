"""How many drafts the target model accepts: drawn for a request at a place in its answer, whatever else happens.

What is drawn depends on the seed, the request and the tokens it has, and on nothing that a scheduler does: two runs
that differ in routing, preemption or batch accept alike (common random numbers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.request import Request

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_BITS: Final = 53
"""Bits of a draw: whole numbers below 2**53, which floats hold exactly."""


def mixed(number: int) -> int:
    """64 bits that look random, from any whole number: the output function of SplitMix64 (Steele, Lea and Flood, 2014,
    Fast splittable pseudorandom number generators).
    """
    number &= _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


class Acceptance:
    """Draws how far the drafts of a request are right.

    `probabilities`: of each draft in turn, that it is accepted given that all before it are. `match_rate`: how often
    there is something to propose at all. `seed`: any 64 bits.
    """

    def __init__(self, probabilities: Sequence[float], match_rate: float, seed: int) -> None:
        self._seed = seed
        self._match = round(match_rate * (1 << _BITS))
        self._reached: list[int] = []
        """Of each draft, how many of all draws accept it and those before it."""
        share = 1.0
        for probability in probabilities:
            share *= probability
            self._reached.append(round(share * (1 << _BITS)))

    def num_accepted(self, request: Request, num_drafts: int) -> int:
        """How many of the next `num_drafts` drafts of a request with `num_tokens` known tokens are accepted."""
        draw = self._draw(request, 0)
        accepted = 0
        for reached in self._reached[:num_drafts]:
            if draw >= reached:
                break
            accepted += 1
        return accepted

    def finds_match(self, request: Request) -> bool:
        """Whether there is something to propose after the known tokens of a request."""
        return self._draw(request, 1) < self._match

    def _draw(self, request: Request, purpose: int) -> int:
        """A whole number below 2**53, for a request at the place in its answer where it stands."""
        stream = mixed(self._seed + int(request.id) * _GOLDEN)
        return mixed(stream + (2 * request.num_tokens + purpose) * _GOLDEN) >> (64 - _BITS)
