"""Inter-token latency: the pooled gaps of a run, taken from steps, are those of the plain list of token times."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_result import MILLISECOND, SECOND, Toy, poisson

from simserve.report import tokens
from simserve.report.itl import NUM_BINS, Weighted, bin_edges, gaps, pool, pooled_gaps
from simserve.report.statistics import statistics_of
from simserve.report.tokens import token_blocks, token_times
from simserve.spec.result import Result

PERCENTILES = (0, 1, 50, 90, 95, 99, 99.9, 100)


def everyone(result: Result) -> np.ndarray:
    return np.ones(result.requests["arrival"].size, np.bool_)


def expanded(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[int]:
    return sorted(v for values, weights in pairs for v, w in zip(values, weights, strict=True) for _ in range(w))


@st.composite
def toys(draw: Callable[..., int]) -> Toy:
    n = draw(st.integers(1, 12))

    def ints(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=n, max_size=n))

    stalls = {r: {draw(st.integers(1, 10)): draw(st.integers(1, 9))} for r in range(n) if draw(st.booleans())}
    return Toy(
        arrival=sorted(ints(0, SECOND // 4)),
        input_len=ints(1, 300),
        output_len=ints(1, 25),
        seats=draw(st.integers(1, 5)),
        replicas=draw(st.integers(1, 3)),
        per_token=draw(st.sampled_from([0, 1, 100_003])),
        stalls=stalls,
    )


@given(toys(), st.sampled_from([1, 3, 1 << 17]), st.randoms())
def test_pooled_gaps_are_those_of_the_token_times(toy: Toy, block: int, random: object) -> None:
    """LLMServingSim, changelog: no interval of looking (here: steps taken together) changes a number."""
    result = toy.run()
    rows = [r for r in range(len(toy.arrival)) if random.random() < 0.7]  # type: ignore[attr-defined]
    chosen = np.zeros(len(toy.arrival), np.bool_)
    chosen[rows] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "BLOCK", block)
        assert expanded(pooled_gaps(result, chosen)) == sorted(toy.gaps(rows))
        seen = [
            t for b in token_blocks(result, chosen) for t, w in zip(b.time, b.tokens, strict=True) for _ in range(w)
        ]
    assert sorted(seen) == sorted(t for r in rows for t in toy.tokens[r])


@given(toys())
def test_a_request_begins_and_ends_with_its_steps(toy: Toy) -> None:
    result = toy.run()
    assert token_times(result, result.requests["first_step"], result.requests["replica"]).tolist() == [
        t[0] for t in toy.tokens
    ]
    assert token_times(result, result.requests["last_step"], result.requests["replica"]).tolist() == [
        t[-1] for t in toy.tokens
    ]


@given(
    st.lists(st.tuples(st.integers(0, 2**45), st.integers(1, 9)), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_percentiles_equal_numpy_on_the_expanded_list(pairs: list[tuple[int, int]], cuts: list[int]) -> None:
    values, weights = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    parts = list(zip(np.split(values, sorted(cuts)), np.split(weights, sorted(cuts)), strict=True))
    found = Weighted(lambda: parts).statistics(PERCENTILES)
    full = np.repeat(values, weights)
    assert found is not None
    assert list(found.percentiles.values()) == np.percentile(full, PERCENTILES).tolist()
    assert found.median == np.median(full)
    assert found.count == full.size
    assert found.mean == pytest.approx(full.mean(), rel=1e-12)
    assert found.std == pytest.approx(full.std(), rel=1e-9, abs=1e-9 * full.max())


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_percentiles_of_many_ties(values: list[int]) -> None:
    column = np.array(values, np.int64)
    found = Weighted(lambda: [(column, np.ones_like(column))]).statistics(PERCENTILES)
    assert found is not None
    assert list(found.percentiles.values()) == np.percentile(column, PERCENTILES).tolist()


def test_statistics_of_a_run_are_those_of_the_list_in_seconds() -> None:
    toy = poisson(300, rate=20, stalls={5: {3: 40}, 70: {2: 7, 10: 3}})
    result = toy.run()
    found = gaps(result, everyone(result)).statistics(PERCENTILES)
    plain = statistics_of(np.array(toy.gaps()) / SECOND, PERCENTILES)
    assert found is not None
    assert plain is not None
    assert found.count == plain.count == sum(toy.output_len) - 300
    assert found.percentiles == pytest.approx(plain.percentiles, rel=1e-14)
    assert (found.mean, found.std) == pytest.approx((plain.mean, plain.std), rel=1e-12)


def test_a_preemption_is_one_gap() -> None:
    toy = Toy([0, 0], [100, 100], [5, 30], stalls={0: {2: 10}}, per_token=0)
    result = toy.run()
    only_first = np.array([True, False])
    found = expanded(pooled_gaps(result, only_first))
    assert len(found) == 4
    assert found[-1] == toy.tokens[0][2] - toy.tokens[0][1] > 10 * 5 * MILLISECOND


def test_a_request_without_a_token_has_no_gap() -> None:
    toy = poisson(30, rate=20)
    result = toy.run()
    result.requests["first_step"][4] = result.requests["last_step"][4] = -1
    assert expanded(pooled_gaps(result, everyone(result))) == sorted(toy.gaps([r for r in range(30) if r != 4]))
    assert sum(block.tokens.sum() for block in token_blocks(result, everyone(result))) == sum(toy.output_len) - len(
        toy.tokens[4]
    )


def test_no_gap_no_statistics() -> None:
    result = Toy([0, 0], [10, 10], [1, 1]).run()
    assert gaps(result, everyone(result)).statistics(PERCENTILES) is None
    none = np.zeros(2, np.bool_)
    assert gaps(result, none).statistics(PERCENTILES) is None


def test_ticks_keep_gaps_exact_where_seconds_cannot() -> None:
    toy = Toy([0, 30_000 * SECOND, 30_000 * SECOND + 17], [10, 10, 10], [3, 9, 5])
    result = toy.run()
    steps = result.steps | {n: np.rint(result.steps[n] * SECOND).astype(np.int64) for n in ("gap", "gap_growth")}
    times = [t for token in toy.tokens for t in token]
    steps["first_token_time"] = np.array(
        [min(times, key=lambda t: abs(t - s * SECOND)) for s in steps["first_token_time"]]
    )
    exact = Result(None, result.requests, steps, result.gaps)  # type: ignore[arg-type]
    assert expanded(pooled_gaps(exact, everyone(exact))) == sorted(toy.gaps())
    assert expanded(pooled_gaps(result, everyone(result))) != sorted(toy.gaps())


def test_bins_are_narrow_and_in_order() -> None:
    edges = bin_edges()
    assert edges.size == NUM_BINS
    assert np.all(np.diff(edges) > 0)
    assert np.all(edges[2:] / edges[1:-1] < 1 + 2**-11)
    values = np.array([0, 1, 2, 3, 12345, 2**53], np.int64)
    counted = pool([(values, np.ones_like(values))]).bins
    for value, found in zip(values, np.flatnonzero(counted), strict=True):
        assert edges[found] <= value < edges[found + 1]
