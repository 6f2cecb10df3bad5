"""The API server's thread: a burst waits for all of it to be read, a steady load queues before the queue."""

import pytest

from notebooks.gallery.api_server import RATES, measure

CHATS, SLOW, FAST = 1000, 13.3e-3, 1.8e-3


def test_a_burst_waits_for_the_work_of_all_of_it() -> None:
    measured = measure()
    assert measured["first_of_slow_s"] > CHATS * SLOW
    assert measured["median_of_fast_s"] - measured["median_without_s"] == pytest.approx(CHATS * FAST, rel=0.05)
    assert measured["median_of_four_s"] - measured["median_without_s"] == pytest.approx(CHATS * SLOW / 4, rel=0.05)


def test_under_a_steady_load_the_thread_is_a_queue_before_the_queue() -> None:
    measured = measure()
    assert measured["share_busy"] == pytest.approx(RATES[-1] * SLOW)
    assert measured["p95_of_slow_ms"] > 5 * measured["p95_of_four_ms"]
    assert measured["p95_of_slow"] == sorted(measured["p95_of_slow"])
    assert max(measured["p95_of_four"]) < 1.2 * min(measured["p95_of_four"])
