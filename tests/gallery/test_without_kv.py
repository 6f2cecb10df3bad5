"""Without a KV cache: the work is the sum over the text's lengths, and grows with the square of the answer."""

import pytest

from notebooks.gallery.without_kv import ANSWERS, measure


def test_twice_the_answer_is_four_times_the_work_without_and_twice_with() -> None:
    measured = measure()
    for answer, without, kept in zip(ANSWERS, measured["work_without"], measured["work_with"], strict=True):
        assert without == sum(10 + given for given in range(answer))
        assert kept == 10 + answer - 1
    assert measured["work_ratio_without"] == pytest.approx(4, rel=0.03)
    assert measured["work_ratio_with"] == pytest.approx(2, rel=0.03)
    assert 3 < measured["time_ratio_without"] <= 4.2
    assert measured["time_ratio_with"] == pytest.approx(2, rel=0.1)
