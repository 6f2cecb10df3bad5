"""Quantisation: weights for decode, activations for prefill, KV for room."""

import pytest

from notebooks.gallery.quantisation import measure


def test_weights_activations_and_kv_each_speed_up_something_else() -> None:
    measured = measure()
    assert measured["tpot_bf16_ms"] > 1.5 * measured["tpot_fp8_ms"] > 1.5 * measured["tpot_int4_ms"]
    assert measured["weights_fp8_gib"] < 0.6 * measured["weights_bf16_gib"]
    assert measured["weights_int4_gib"] < measured["weights_fp8_gib"] - 2
    assert measured["ttft_int4_ms"] == pytest.approx(measured["ttft_bf16_ms"], rel=0.05)
    assert measured["ttft_fp8_ms"] < 0.75 * measured["ttft_bf16_ms"]
    # at one user the KV cache is short beside the weights, so that half of it saves no time, but half of its room
    assert measured["tpot_kv_ms"] == pytest.approx(measured["tpot_bf16_ms"], rel=0.02)
    assert measured["kv_tokens_kv"] == pytest.approx(2 * measured["kv_tokens_bf16"], rel=0.01)
    assert measured["kv_tokens_all"] == pytest.approx(2 * measured["kv_tokens_fp8"], rel=0.01)
    assert measured["kv_tokens_int4"] > measured["kv_tokens_fp8"] > 2 * measured["kv_tokens_bf16"]
    # 32 users of 2,200 tokens are 70,400: they wait for room in bf16, and for none with all in fp8
    assert measured["kv_tokens_bf16"] < 70_400 < measured["kv_tokens_all"]
    assert measured["queue_bf16_s"] > 5 * measured["queue_all_s"]
    assert measured["throughput_all_over_bf16"] > 2
