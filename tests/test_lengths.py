"""Length distributions: bounds always, moments against closed forms, to five standard errors on fixed seeds."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.errors import ScenarioError
from simserve.spec.workload import (
    ConstantLength,
    EmpiricalLength,
    LengthSpec,
    LognormalLength,
    NormalLength,
    UniformLength,
)
from simserve.workload.lengths import LONGEST, IntArray, draw_lengths
from simserve.workload.streams import random_stream

COUNT = 200_000


def draw(lengths: LengthSpec, count: int = COUNT, seed: int = 0) -> IntArray:
    return draw_lengths(lengths, count, random_stream(seed, "input"))


def lognormal(mean: float, cv: float, **bounds: int) -> LognormalLength:
    return LognormalLength(distribution="lognormal", mean=mean, cv=cv, **bounds)


def normal(mean: float, stddev: float, **bounds: int) -> NormalLength:
    return NormalLength(distribution="normal", mean=mean, stddev=stddev, **bounds)


def normal_tail(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2


def tail(lengths: NormalLength | LognormalLength) -> Callable[[float], float]:
    """P(X >= x) before rounding and clipping."""
    if isinstance(lengths, NormalLength):
        return lambda x: normal_tail((x - lengths.mean) / lengths.stddev)
    sigma = math.sqrt(math.log(1 + lengths.cv**2))
    mu = math.log(lengths.mean) - sigma**2 / 2
    return lambda x: normal_tail((math.log(x) - mu) / sigma)


def moments(lengths: NormalLength | LognormalLength, high: int) -> tuple[float, float]:
    """Exact mean and variance after rounding and clipping: E f(Y) = f(min) + sum of (f(k) - f(k - 1)) P(Y >= k)."""
    chances = [(k, tail(lengths)(k - 0.5)) for k in range(lengths.min + 1, high + 1)]
    mean = lengths.min + math.fsum(chance for _, chance in chances)
    square = lengths.min**2 + math.fsum((2 * k - 1) * chance for k, chance in chances)
    return mean, square - mean**2


bounds = st.integers(1, 500).flatmap(lambda low: st.tuples(st.just(low), st.integers(low, 1000)))
bounded = st.one_of(
    bounds.map(lambda b: UniformLength(distribution="uniform", min=b[0], max=b[1])),
    st.builds(
        lambda b, mean, stddev: normal(min(max(mean, b[0]), b[1]), stddev, min=b[0], max=b[1]),
        bounds,
        st.floats(1, 1e4),
        st.floats(0.1, 1e4),
    ),
    st.builds(
        lambda b, mean, cv: lognormal(min(max(mean, b[0]), b[1]), cv, min=b[0], max=b[1]),
        bounds,
        st.floats(1, 1e6),
        st.floats(0.01, 50),
    ),
)


@given(bounded, st.integers(0, 500), st.integers(0, 2**32))
def test_lengths_are_whole_within_bounds_and_a_shorter_draw_is_the_head_of_a_longer(
    lengths: UniformLength | NormalLength | LognormalLength, count: int, seed: int
) -> None:
    drawn = draw(lengths, count, seed)
    assert drawn.dtype == np.int64
    assert len(drawn) == count
    assert lengths.max is not None
    assert np.all((drawn >= lengths.min) & (drawn <= lengths.max))
    np.testing.assert_array_equal(draw(lengths, 2 * count, seed)[:count], drawn)


@pytest.mark.parametrize(
    ("lengths", "high"),
    [
        (lognormal(512, 1.0), 100_000),
        (lognormal(512, 1.0, max=8192), 8192),
        (lognormal(512, 1.0, max=1024), 1024),
        (lognormal(20, 2.0, min=8, max=400), 400),
        (lognormal(1000, 0.1), 3000),
        (normal(300, 50), 1000),
        (normal(100, 80, min=50, max=150), 150),
        (normal(2, 5), 100),
    ],
    ids=str,
)
def test_moments_are_those_of_the_clipped_distribution(lengths: NormalLength | LognormalLength, high: int) -> None:
    mean, variance = moments(lengths, high)
    drawn = draw(lengths).astype(float)
    assert drawn.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / COUNT))
    kurtosis = np.mean((drawn - mean) ** 4) / variance**2
    assert drawn.var() == pytest.approx(variance, rel=5 * math.sqrt(kurtosis / COUNT))


def test_mean_and_cv_of_a_lognormal_are_those_before_clipping() -> None:
    mean, variance = moments(lognormal(512, 1.0), 200_000)
    assert mean == pytest.approx(512, rel=1e-3)
    assert math.sqrt(variance) / mean == pytest.approx(1, rel=1e-2)


def test_what_a_maximum_does_to_the_mean() -> None:
    """The numbers of the module's docstring."""
    assert moments(lognormal(512, 1.0, max=8192), 8192)[0] == pytest.approx(512, rel=1e-3)
    assert moments(lognormal(512, 1.0, max=1024), 1024)[0] == pytest.approx(447, abs=0.5)


def test_clipped_mass_lies_on_the_bounds() -> None:
    drawn = draw(normal(100, 50, min=80, max=120))
    for bound, chance in ((80, 1 - tail(normal(100, 50))(80.5)), (120, tail(normal(100, 50))(119.5))):
        assert np.mean(drawn == bound) == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / COUNT))


def test_a_wild_lognormal_stays_a_number_of_tokens() -> None:
    drawn = draw(lognormal(1e9, 1e6))
    assert drawn.min() == 1
    assert drawn.max() == LONGEST


def test_uniform_takes_every_value_both_ends_included() -> None:
    counts = np.bincount(draw(UniformLength(distribution="uniform", min=3, max=12)))[3:]
    assert len(counts) == 10
    expected = COUNT / 10
    assert np.all(np.abs(counts - expected) < 5 * math.sqrt(expected))


def test_constant_is_constant() -> None:
    np.testing.assert_array_equal(draw(ConstantLength(distribution="constant", value=7), 3), [7, 7, 7])


def test_empirical_draws_the_listed_values_by_their_frequency() -> None:
    drawn = draw(EmpiricalLength(distribution="empirical", values=(10, 20, 20, 30)))
    assert set(drawn.tolist()) == {10, 20, 30}
    assert np.mean(drawn == 20) == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / COUNT))


def test_empirical_from_a_file_is_empirical_from_its_values(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("10\n20\n\n20\n30\n")
    from_file = draw(EmpiricalLength(distribution="empirical", file=str(file)))
    np.testing.assert_array_equal(from_file, draw(EmpiricalLength(distribution="empirical", values=(10, 20, 20, 30))))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10\n-3\n", "line 2: '-3' is not a whole number of at least 1 token"),
        ("10\n\n0\n", "line 3: '0' is not a whole number"),
        ("input_len\n10\n", "line 1: 'input_len' is not a whole number"),
        ("1.5\n", "line 1: '1.5' is not a whole number"),
        ("\n", "no lengths; expected one number of tokens a line"),
    ],
)
def test_a_bad_file_of_lengths_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=f"{file}.*{complaint}"):
        draw(EmpiricalLength(distribution="empirical", file=str(file)))


def test_a_missing_file_of_lengths_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none.txt: cannot be read as a list of lengths"):
        draw(EmpiricalLength(distribution="empirical", file=str(tmp_path / "none.txt")))
