"""A second look at what was read: does the size in a model's name agree with its parameters?"""

import re

_BILLIONS = re.compile(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)\s?([BbMm])(?![A-Za-z0-9])")
_ACTIVE = re.compile(r"(?<![A-Za-z0-9])A(\d+(?:\.\d+)?)[Bb](?![A-Za-z0-9])")
_BESIDE_EXPERTS = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)[Bb]-\d+E(?![A-Za-z0-9])")
"""As Llama 4 has it: 17B-128E are 17 B active parameters of 128 experts."""

_TOLERANCE = 0.15


def size_warnings(name: str, parameters: int, active: int) -> list[str]:
    """What to say where a size in the name ("300B", "A3B") differs by more than 15 % from the parameters counted.

    Names round, and some count without embeddings or with towers, hence the tolerance. "8x7B" is left alone: it counts
    what the experts share eight times.
    """
    found = []
    part = _BESIDE_EXPERTS.search(name)
    whole = None if part else _BILLIONS.search(name)
    if whole is not None and whole.group(1) is None:
        stated = float(whole.group(2)) * (1e9 if whole.group(3) in "Bb" else 1e6)
        found += _warning("parameters", stated, parameters, name)
    part = part or _ACTIVE.search(name)
    if part is not None:
        found += _warning("parameters active for a token", float(part.group(1)) * 1e9, active, name)
    return found


def _warning(what: str, stated: float, counted: int, name: str) -> list[str]:
    off = counted / stated - 1 if stated else 0.0
    if abs(off) <= _TOLERANCE:
        return []
    return [f"its name, {name}, says {stated / 1e9:g} B {what}, its shapes make {counted / 1e9:.2f} B ({off:+.0%})"]
