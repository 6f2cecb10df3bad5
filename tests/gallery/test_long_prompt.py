"""A long prompt among chats: whole, in chunks mixed with decodes, and before all decodes."""

from notebooks.gallery.long_prompt import measure


def test_chunks_shorten_the_gaps_of_the_others_and_prefill_first_does_not() -> None:
    measured = measure()
    assert measured["gap_whole_ms"] > 1000
    assert measured["gap_of_chunks_ms"] < 100
    assert measured["gap_prefill_first_ms"] > 1000
    # the prompt's own time, which is the gap: all of it in one step, or no decode between its steps
    assert abs(measured["gap_whole_ms"] / measured["ttft_whole_ms"] - 1) < 0.1


def test_the_smaller_the_chunks_the_longer_the_prompt_waits() -> None:
    measured = measure()
    mixed = slice(0, 4)
    assert measured["gaps_ms"][mixed] == sorted(measured["gaps_ms"][mixed], reverse=True)
    assert measured["ttft_whole_ms"] < measured["ttft_of_chunks_ms"] < measured["ttft_of_small_chunks_ms"]
