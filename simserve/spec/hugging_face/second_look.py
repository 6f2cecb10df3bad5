"""A second look at what was read: does the size in a model's name agree with its parameters?"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from simserve.spec.model import ModelSpec

_UNITS = {"T": 1e12, "B": 1e9, "M": 1e6}
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(?P<times>\d+)x)?(?P<active>a)?(?P<digits>\d+(?:[.]\d+)?)\s?(?P<unit>[tbm])"
    r"(?:[-_](?P<experts>\d+)e)?(?![a-z0-9])",
    re.IGNORECASE,
)
_TOLERANCE = 0.15
_LEAST_MILLIONS = 10
"""Fewer millions are tokens of context ("1M")."""
_LEAST_SHARE = 0.6
"""Of "8x7B", what experts share counts once, and they are most of the model."""


class _Size(NamedTuple):
    """A size in a name; `half_unit` is half of one in its last digit, which is what rounding hides."""

    stated: float
    half_unit: float
    times: int
    is_active: bool
    unit: str

    def fits(self, counts: Iterable[float]) -> bool:
        """Whether one of the counts is within the tolerance, or rounds to it."""
        allowed = max(_TOLERANCE * self.stated, self.half_unit)
        return any(abs(count - self.stated) <= allowed for count in counts)


def size_warnings(name: str, model: ModelSpec) -> list[str]:
    """What to say where a size in the name ("300B", "A3B", "8x7B") is off from the parameters counted by more than 15 %
    and more than rounding.

    Some names count without towers, or without embedding and head, so each such count may agree. "A3B" is what a token
    passes, and so is "17B" before a number of experts ("17B-16E"). "8x7B" counts eight times what the experts share, so
    a model has less. Of several sizes without an A (OLMoE-1B-7B) one has to agree.
    """
    sizes = [size for size in map(_size, _SIZE.finditer(name)) if size is not None]
    active = [size for size in sizes if size.is_active]
    whole = [size for size in sizes if not size.is_active]
    # The number of parameters comes before other things that are counted in trillions or millions, tokens mostly.
    whole = [size for size in whole if size.unit == "B"] or whole[:1]
    found = []
    totals = _less_embeddings(model, model.num_parameters - model.tower_parameters, model.num_parameters)
    if whole and not any(_is_whole(size, totals, model) for size in whole):
        found.append(_warning("parameters", whole[0].stated * whole[0].times, model.num_parameters, name))
    passed = _less_embeddings(model, model.num_active_parameters)
    if active and not any(size.fits(passed) for size in active):
        what = "parameters active for a token"
        found.append(_warning(what, active[0].stated, model.num_active_parameters, name))
    return found


def _size(match: re.Match[str]) -> _Size | None:
    unit, digits = match["unit"].upper(), match["digits"]
    factor, decimals = _UNITS[unit], len(digits.partition(".")[2])
    stated = float(digits)
    if not stated or (unit == "M" and stated < _LEAST_MILLIONS):
        return None
    is_active = match["active"] is not None or match["experts"] is not None
    return _Size(stated * factor, factor / 10**decimals / 2, int(match["times"] or 1), is_active, unit)


def _less_embeddings(model: ModelSpec, *counts: int) -> list[float]:
    """Counts as they are, without the embedding, and without the head, too."""
    embedding, head = model.embedding_parameters, model.lm_head_parameters
    return [count - less for count in counts for less in (0, embedding, embedding + head)]


def _is_whole(size: _Size, totals: Iterable[float], model: ModelSpec) -> bool:
    if size.times > 1:
        most = size.times * size.stated
        return _LEAST_SHARE * most <= model.num_parameters <= (1 + _TOLERANCE) * most
    return size.fits(totals)


def _warning(what: str, stated: float, counted: int, name: str) -> str:
    off = counted / stated - 1
    return f"its name, {name}, says {stated / 1e9:g} B {what}, its shapes make {counted / 1e9:.2f} B ({off:+.0%})"
