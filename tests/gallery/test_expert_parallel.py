"""Expert parallelism: chance, the busiest GPU, and what a full batch gains."""

from notebooks.gallery.expert_parallel import TOKENS, measure


def test_spread_experts_lose_until_a_batch_touches_all() -> None:
    measured = measure()
    assert 1.3 < measured["busiest_of_8_tokens_over_mean"] < 1.7
    assert 1.1 < measured["step_of_8_spread_over_cut"] < 1.5
    # 256 (1 - (1 - 8 / 256)^T) is 99 % of 256 at T = ln 0.01 / ln(31 / 32) = 145.05
    assert measured["tokens_that_touch_all"] == 146
    assert measured["step_of_4096_spread_over_cut"] < 1
    assert measured["step_of_4096_imbalanced_over_cut"] > measured["step_of_4096_spread_over_cut"] + 0.02
    assert measured["busiest"] == sorted(measured["busiest"], reverse=True)
    spread, cut = measured["ms spread"], measured["ms cut"]
    assert all(one > other for one, other, tokens in zip(spread, cut, TOKENS, strict=True) if tokens <= 64)
    assert 0.3 < measured["exchange_over_sum"] < 1
