"""Batching: decode reads the weights once for all, until compute takes over."""

from notebooks.gallery.batching import measure


def test_thirty_two_users_wait_hardly_longer_than_one() -> None:
    measured = measure()
    assert 1.0 < measured["tpot_of_32_users_ms"] / measured["tpot_of_1_user_ms"] < 1.1
    assert 28 < measured["throughput_of_32_users_over_1"] < 32
    # H100: 989 TFLOP/s over 3.35 TB/s is 295 FLOPs a byte, and bf16 does one FLOP per row and byte
    assert 250 < measured["users_where_compute_takes_over"] < 450
    assert measured["throughput_of_1024_users_over_512"] < 1.2
    assert measured["speed_of_1024_users_over_512"] < 0.6
    assert measured["output_tokens_per_s"] == sorted(measured["output_tokens_per_s"])
    assert measured["tokens_per_s_and_user"] == sorted(measured["tokens_per_s_and_user"], reverse=True)
