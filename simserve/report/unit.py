"""The unit in which people and keys state a metric."""

from typing import NamedTuple


class Unit(NamedTuple):
    """Its symbol, which ends the keys of a metric (`mean_ttft_ms`), and how many of it are one of the formula's."""

    symbol: str
    factor: float = 1.0


MILLISECONDS = Unit("ms", 1e3)
"""Of formulas that give seconds."""
