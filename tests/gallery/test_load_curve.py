"""Throughput against latency: gentle up to nine tenths of the capacity, and no way back past it."""

from notebooks.gallery.load_curve import RATES, measure


def test_latency_rises_gently_until_throughput_is_all_there_is() -> None:
    measured = measure()
    assert 0.8 < measured["load_of_45"] < 0.95
    assert 2 < measured["p95_ttft_of_45_ms"] / measured["p95_ttft_of_1_ms"] < 6
    assert measured["p95_ttft_of_60_ms"] > 50 * measured["p95_ttft_of_45_ms"]
    out = dict(zip(RATES, measured["answers_per_s"], strict=True))
    for rate in RATES:
        if rate <= 45:  # what comes in goes out
            assert abs(out[rate] - rate) < 4 * (rate / 60) ** 0.5  # four standard deviations of a Poisson count
        if rate >= 55:  # what can go out goes out
            assert out[rate] > 0.9 * measured["capacity"]
    assert measured["goodput_of_45"] > 0.95 * out[45]
    assert measured["goodput_of_60"] < 1
    assert measured["p95_ttft_ms"][5:] == sorted(measured["p95_ttft_ms"][5:])
