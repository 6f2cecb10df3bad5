"""Static against continuous batching, on answers of mixed and of equal length."""

import numpy as np

from notebooks.gallery.static_batching import measure


def test_most_rows_of_static_batches_are_for_nobody() -> None:
    measured = measure()
    assert measured["useful_share"] < 0.25
    assert measured["useful_share_of_continuous"] == 1
    # of a batch that is full: the mean of its lengths over the longest
    lengths = np.array(measured["lengths"])
    assert lengths.size == 64
    assert lengths.mean() / lengths.max() < 0.25


def test_continuous_batching_makes_more_tokens_and_answers_sooner() -> None:
    measured = measure()
    assert measured["throughput_of_continuous_over_static"] > 4
    assert measured["p95_e2el_static_s"] > 5 * measured["p95_e2el_continuous_s"]
    pairs = zip(measured["p95_e2el_s_of_static"], measured["p95_e2el_s_of_continuous"], strict=True)
    assert all(static > continuous for static, continuous in pairs)


def test_it_is_the_mixed_lengths_that_cost() -> None:
    assert 0.85 < measure()["throughput_of_static_with_equal_answers"] <= 1.05
