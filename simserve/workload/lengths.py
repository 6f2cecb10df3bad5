"""Lengths: how many tokens a prompt, an answer or a `max_tokens` has.

A distribution is drawn in floats, rounded to the nearest whole token and clipped to [min, max], at least one token.
`mean`, `stddev` and `cv` describe the distribution *before* clipping, which moves what lies outside onto the bounds: a
`max` lowers mean and spread, a `min` raises the mean. A lognormal of mean 512 and cv 1 keeps its mean within 0.1 % with
a max of 8192; with a max of 1024 the mean falls to 447.
"""

import math
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.workload import (
    ConstantLength,
    EmpiricalLength,
    LengthSpec,
    LognormalLength,
    NormalLength,
    UniformLength,
)

IntArray = NDArray[np.int64]

LONGEST: Final = 2**31 - 1
"""Bound in tokens where the scenario has none, so that no draw leaves the integers."""


def draw_lengths(lengths: LengthSpec, count: int, rng: np.random.Generator) -> IntArray:
    """Draw `count` lengths in tokens, each at least 1. The first n of a longer draw are the draw of n.

    Raises:
        ScenarioError: the file of an empirical distribution is missing or holds something that is not a length.
    """
    match lengths:
        case ConstantLength():
            return np.full(count, lengths.value, dtype=np.int64)
        case UniformLength():
            return rng.integers(lengths.min, lengths.max, size=count, endpoint=True)
        case NormalLength():
            return _clipped(rng.normal(lengths.mean, lengths.stddev, count), lengths)
        case LognormalLength():
            # Of the logarithm: mean = exp(mu + variance / 2) and cv^2 = exp(variance) - 1.
            variance = math.log1p(lengths.cv**2)
            mu = math.log(lengths.mean) - variance / 2
            return _clipped(rng.lognormal(mu, math.sqrt(variance), count), lengths)
        case EmpiricalLength():
            values = listed_lengths(lengths)
            return values[rng.integers(0, len(values), size=count)]


def _clipped(drawn: NDArray[np.float64], lengths: NormalLength | LognormalLength) -> IntArray:
    return np.clip(np.rint(drawn), lengths.min, lengths.max or LONGEST).astype(np.int64)


def listed_lengths(lengths: EmpiricalLength) -> IntArray:
    """Lengths of an empirical distribution: those in the scenario, or one a line in its file.

    Raises:
        ScenarioError: the file is missing, empty, or has a line that is not a whole number of at least 1.
    """
    if lengths.path is None:
        return np.array(lengths.values, dtype=np.int64)
    values = [_length(lengths.path, number, line) for number, line in _lines(lengths.path) if line]
    if not values:
        raise ScenarioError(f"{lengths.path}: no lengths; expected one number of tokens a line")
    return np.array(values, dtype=np.int64)


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read as a list of lengths: {error}") from error
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]


def _length(path: Path, number: int, line: str) -> int:
    if not line.isdecimal() or int(line) < 1:
        raise ScenarioError(f"{path}, line {number}: {line!r} is not a whole number of at least 1 token")
    return int(line)
