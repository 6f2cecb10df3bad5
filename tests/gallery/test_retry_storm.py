"""Retry storm: it outlasts its cause, whatever the pauses, and a limit on the queue prevents it."""

from notebooks.gallery.retry_storm import measure


def test_a_storm_outlasts_its_burst_unless_the_queue_is_short() -> None:
    measured = measure()
    assert measured["capacity"] > 3 / 0.8
    assert measured["answered_without_retries"] > 0.99
    assert measured["answered_with_retries"] < 0.01
    assert measured["answered_with_long_pauses"] < 0.01
    assert measured["answered_with_limit"] > 0.99
    assert measured["answered_in_all_with_limit"] > measured["answered_in_all_without_retries"] + 0.05
    assert measured["answered_in_all_with_retries"] < 0.3
    assert 2.5 < measured["attempts_per_request"] <= 3
    assert measured["attempts_per_request_with_limit"] < 1.5
