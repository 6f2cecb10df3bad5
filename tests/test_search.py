"""The search finds the crossing to the precision it promises, whatever the start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.planning.search import NoCrossingError, largest_load


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.sampled_from([1.1, 2.0]))
def test_bracket_holds_the_crossing_to_the_precision(limit: float, start: float, factor: float) -> None:
    bracket = largest_load(lambda load: load <= limit, start, precision=0.02, factor=factor, tries=200)
    assert bracket.low <= limit < bracket.high
    assert bracket.high <= bracket.low * 1.02 * (1 + 1e-12)


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([1.1, 2.0]))
def test_whole_loads_are_found_exactly(limit: int, start: int, factor: float) -> None:
    bracket = largest_load(lambda load: load <= limit, start, precision=0, whole=True, factor=factor, tries=200)
    assert (bracket.low, bracket.high) == (limit, limit + 1)


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3))
def test_low_was_seen_to_meet_and_high_was_seen_not_to(limit: float, start: float) -> None:
    seen = {}

    def meets(load: float) -> bool:
        seen[load] = load <= limit
        return seen[load]

    bracket = largest_load(meets, start)
    assert (seen[bracket.low], seen[bracket.high]) == (True, False)
    assert not [load for load in seen if bracket.low < load < bracket.high]


def test_no_crossing_tells_which_side_all_loads_lie_on() -> None:
    with pytest.raises(NoCrossingError, match="every load") as always:
        largest_load(lambda load: True, 1)
    assert always.value.meets
    with pytest.raises(NoCrossingError, match="no load") as never:
        largest_load(lambda load: False, 7, whole=True)
    assert (never.value.meets, never.value.load) == (False, 1)
