"""What every reader of a trace yields: rows as columns, where they stand, and what was left out or guessed on the way.

`Table` is the common record: arrival time, tokens, identity of the prompt's beginning, session, failure. `Options` are
what a user may say about a file that its format leaves open.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.workload import TimeUnit, Turns

SECONDS: Final[Mapping[TimeUnit, float]] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds in a unit of time."""

Column = Sequence[Any] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Options:
    """What a user says of a file; None where the format, or the file itself, decides."""

    rows: slice = field(default_factory=lambda: slice(0, None))
    """Rows taken, in the order of the file."""
    time_unit: TimeUnit | None = None
    block_size: int | None = None
    """Tokens of a block that one hash id stands for."""
    tokenizer: str | None = None
    """`tokenizer.json`, or the name of a model, by which texts are counted."""
    characters_per_token: float | None = None
    """Ratio by which texts are counted without a tokenizer."""
    turns: Turns = "first"
    """Of conversations: the first exchange alone, as `vllm bench serve` takes it, or all of them as a chat."""
    result: int | None = None
    """Which of several results in one file, from 0."""
    seed: int = 0
    """Of what is drawn, where the file holds distributions."""


class Heads(NamedTuple):
    """How prompts begin: for each row ids of stretches of text, and how many tokens there are up to the end of each.

    Two prompts whose first n ids agree begin with the same text, as far as both reach. A row whose `ids` are None says
    nothing of itself.
    """

    ids: Sequence[Sequence[Hashable] | None]
    ends: Sequence[Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a trace file as columns, in the order in which they are to be taken.

    `numbers` says where each row stands: the 1-based line, or the 0-based index of a request where the file has no
    lines (`place` is the noun). `broken` maps a row to what keeps it from being one, `failed` a row to why its request
    was never answered: those are left out whatever the user says, and counted. `fields` maps a column to the name and
    the fields of the file that it was made of, where these differ. `own_clock` is true where arrivals count from the
    start of the run, false where they count from an origin of the recorder's.
    """

    columns: Mapping[str, Column]
    numbers: Sequence[int]
    broken: Mapping[int, str] = field(default_factory=dict)
    fields: Mapping[str, tuple[str, Column]] = field(default_factory=dict)
    place: str = "line"
    own_clock: bool = True
    unit: TimeUnit = "s"
    """Of arrivals and pauses, where the user does not state another."""
    failed: Mapping[int, str] = field(default_factory=dict)
    heads: Heads | None = None
    ignored: Sequence[str] = ()
    """Columns of the file that nothing here uses."""
    notes: Sequence[str] = ()
    """What was taken for granted, drawn or left out in reading, in sentences."""
    arrivals: str | None = None
    """Where the file has no times but says how requests came: those arrivals as a scenario states them."""


def to_floats(column: Column) -> NDArray[np.float64]:
    """Numbers of a column, nan where a field is not one (true and false are not)."""
    if isinstance(column, np.ndarray):
        return column
    if set(map(type, column)) <= {int, float, str}:
        with suppress(ValueError, OverflowError):
            return np.array(column, dtype=np.float64)
    return np.array([_float(value) for value in column], dtype=np.float64)


def _float(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            return float(value)
    return math.nan


def finite(value: object) -> float | None:
    """A number, or None where it is not one."""
    number = _float(value)
    return number if math.isfinite(number) else None


def dig(value: object, *keys: str) -> Any:
    """What lies below some keys of nested objects; None where it is not there."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def first_of(*values: Any) -> Any:
    """The first value that is not None."""
    return next((value for value in values if value is not None), None)


def plural(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
