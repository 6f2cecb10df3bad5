"""Prefix affinity: each prompt is cached where it is asked for, at the price of an uneven load."""

import pytest

from notebooks.gallery.prefix_affinity import BLOCKS, RATES, measure


def test_affinity_finds_nearly_all_where_turns_find_half() -> None:
    measured = measure()
    # of 4,116 tokens in the mean 4,000 are shared: that is all there is to find
    assert measured["hit_rate_prefix_affinity"] == pytest.approx(4000 / 4116, abs=0.01)
    for other in ("round_robin", "least_requests"):
        assert 0.4 < measured[f"hit_rate_{other}"] < 0.6
        assert measured["ttft_prefix_affinity_ms"] < 0.5 * measured[f"ttft_{other}_ms"]
        assert measured[f"hits_by_blocks_{other}"] == sorted(measured[f"hits_by_blocks_{other}"])
        # where all prompts fit on all replicas there is nothing to choose
        assert measured[f"hits_by_blocks_{other}"][-1] > 0.95
    assert min(measured["hits_by_blocks_prefix_affinity"][BLOCKS.index(900) :]) > 0.96
    assert measured["ttft_by_rate_prefix_affinity_ms"][-1] < 100 < measured["ttft_by_rate_round_robin_ms"][-1]
    assert RATES[-1] == 40


def test_a_prompt_in_demand_makes_the_load_uneven() -> None:
    measured = measure()
    assert measured["busiest_of_hot"] > 0.6
    assert measured["tpot_hot_prefix_affinity_ms"] > 1.05 * measured["tpot_hot_round_robin_ms"]
