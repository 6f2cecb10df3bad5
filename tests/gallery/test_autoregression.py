"""Prefill and decode: steps by the answer, and a first token dearer than in proportion to the prompt."""

import pytest

from notebooks.gallery.autoregression import PROMPTS, measure


def test_answers_decide_the_steps_and_prompts_the_first_of_them() -> None:
    measured = measure()
    assert measured["steps_of_1000_tokens"] == 1000
    assert measured["seconds_of_4000_in_1000_out"] < 1.05 * measured["seconds_of_10_in_1000_out"]
    short, long = measured["seconds_by_answer_after_10"][2:]
    assert long / short == pytest.approx(2, rel=0.02)
    assert measured["prefill_bound_by_compute"] > 0.8
    assert measured["decode_bound_by_memory"] > 0.8
    # twice the tokens: twice the products, four times the attention
    assert 2.05 < measured["ttft_ratio_of_8000_to_4000"] < 2.5
    assert 2.5 < measured["ttft_ratio_of_128000_to_64000"] < 4
    assert measured["ttft_ratio_of_500_to_125"] < 2, "short prompts wait for the weights, however short"
    attention = measured["attention"]
    assert attention[PROMPTS.index(128000)] / attention[PROMPTS.index(64000)] == pytest.approx(4, rel=0.1)
