"""Speculative decoding: drafts double the speed of one user, and cost a full server a part of its throughput."""

import pytest

from notebooks.gallery.speculative import DRAFTERS, SERVERS, USERS, crossover, measure

EXPECTED = 1 + 0.7 + 0.7**2 + 0.7**3
"""Tokens of a step: no drafter gains more."""


def test_drafts_help_one_user_and_harm_a_full_server() -> None:
    measured = measure()
    assert measured["eagle_8b_speedup_of_1_user"] == pytest.approx(1.9, abs=0.15)
    assert measured["eagle_70b_speedup_of_1_user"] == pytest.approx(2.2, abs=0.15)
    for server in SERVERS:
        for drafter in DRAFTERS:
            speedups = measured[f"{drafter}_{server}_speedups"]
            assert EXPECTED > speedups[0] > 1.3
            assert speedups == sorted(speedups, reverse=True)
            assert measured[f"{drafter}_{server}_loss_of_512_users"] > 0.1
            assert 64 < measured[f"{drafter}_{server}_crossover_users"] < 360
        dearer = measured[f"draft_model_{server}_crossover_users"] / measured[f"eagle_{server}_crossover_users"]
        assert dearer < 0.95
    # beside 70B a model of 1B is cheap, beside 8B it is not
    assert measured["draft_model_70b_speedup_of_1_user"] > 1.3 * measured["draft_model_8b_speedup_of_1_user"]


def test_tokens_come_in_pieces() -> None:
    measured = measure()
    assert measured["itl_of_1_user_ms"] > 1.2 * measured["plain_tpot_of_1_user_ms"]
    assert measured["tpot_of_1_user_ms"] < 0.6 * measured["plain_tpot_of_1_user_ms"]
    assert measured["tokens_per_pause"] == pytest.approx(EXPECTED, abs=0.15)


def test_a_crossover_lies_where_the_line_over_the_logarithm_does() -> None:
    speedups = [2.0] * (len(USERS) - 2) + [1.5, 0.5]
    assert crossover(speedups) == pytest.approx((256 * 512) ** 0.5)
    with pytest.raises(ValueError, match="does not pass 1"):
        crossover([2.0] * len(USERS))
