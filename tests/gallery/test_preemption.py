"""Recomputing against swapping, as the KV cache shrinks, with and without room reserved for whole prompts."""

from notebooks.gallery.preemption import BLOCKS, measure


def test_swapping_computes_nothing_twice_and_is_a_little_faster() -> None:
    measured = measure()
    assert measured["computed, swap"] == [1.0] * len(BLOCKS)
    assert min(measured["computed, recompute"]) > 1.1
    pairs = zip(measured["speed, swap"], measured["speed, recompute"], strict=True)
    assert all(1 < swap / recompute < 1.05 for swap, recompute in pairs)


def test_prompts_let_in_by_chunks_thrash_where_they_are_computed_again() -> None:
    """What vLLM's gate is for; the smaller the pool, the worse. Swapping hides it."""
    measured = measure()
    assert measured["loss_without_gate"] > 0.15
    assert abs(measured["loss_without_gate_swapping"]) < 0.02
    again = measured["computed, recompute, prompts let in by chunks"]
    assert again == sorted(again, reverse=True)
    assert min(again) > 3
    assert measured["swaps_without_gate"] > 5 * measured["preemptions"]


def test_copies_slow_the_kernels_beside_them_a_little() -> None:
    assert 0 < measure()["interference_per_copied_s_ms"] < 25e9 / 300e9 * 1000 * 1.3
