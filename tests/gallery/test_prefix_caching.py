"""Prefix caching: what is shared must come first, be used again in time, and fit."""

import pytest

from notebooks.gallery._runs import scenario
from notebooks.gallery.prefix_caching import measure
from simserve.cost.build import modelled_step_cost
from simserve.spec.ticks import to_seconds


def test_only_what_is_shared_and_first_is_found() -> None:
    measured = measure()
    assert measured["hit_rate"] > 0.97
    assert measured["hit_rate_variable_first"] == 0
    assert measured["ttft_variable_first_ms"] == measured["ttft_off_ms"]
    cost = modelled_step_cost(scenario("prefix_caching"))
    whole, rest = (cost.step([chunk], 0, 0, 1).latency for chunk in ((812, 0), (12, 800)))
    assert measured["ttft_off_ms"] - measured["ttft_hit_ms"] == pytest.approx(1e3 * to_seconds(whole - rest))
    assert measured["dollars_hit"] < 0.5 * measured["dollars_off"]
    assert measured["price_of_hit"] < 0.1
    # a turn of 150 + 12 tokens after at least 812: all but its own tokens and at most a block
    assert measured["chat_hit_rate"] > 0.95
    assert measured["chat_ttft_of_turn_8_ms"] < 0.6 * measured["chat_ttft_of_turn_8_off_ms"]
    assert measured["hit_rates"] == sorted(measured["hit_rates"])
    assert measured["hit_rate_of_half_the_blocks"] == pytest.approx(0.5, abs=0.08)
    assert measured["hit_rate_of_all_and_half_the_blocks"] > 0.94
    assert measured["hit_rate_one_in_two"] > 0.97
    # it survives about ten documents: found unless more of them than that came since its last use
    assert measured["hit_rate_one_in_ten"] == pytest.approx(1 - 0.9**10, abs=0.05)
