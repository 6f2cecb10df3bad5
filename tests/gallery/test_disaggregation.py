"""Prefill and decode pools: answers never pause for a prompt, their second token waits for KV, and prompts queue."""

import numpy as np
import pytest

from notebooks.gallery._runs import run
from notebooks.gallery.disaggregation import measure

KV_OF_THE_PROMPT = 32_000 * 2 * 32 * 8 * 128 * 2
"""Bytes: tokens, keys and values, layers, KV heads, head size, bf16."""


def test_no_answer_pauses_for_a_prompt_in_the_decode_pool() -> None:
    measured = measure()
    assert measured["gap_of_pools_ms"] < 10
    assert measured["gap_of_chunks_ms"] > 4 * measured["gap_of_pools_ms"]


def test_the_transfer_shows_in_the_first_gap() -> None:
    measured = measure()
    assert measured["sent_gb"] == pytest.approx(KV_OF_THE_PROMPT / 1e9)
    alone = KV_OF_THE_PROMPT / 50e9 * 1e3 + 2
    beside = 1e3 * bytes_beside_the_longest() / 50e9
    assert alone <= measured["transfer_ms"] <= (alone + beside) * (1 + 1e-6), "the card never rests"
    assert measured["gap_of_pools_ms"] < measured["median_first_gap_of_pools_ms"] < measured["first_gap_of_pools_ms"]
    assert measured["first_gap_over_a_slow_link_ms"] > 3 * measured["first_gap_of_pools_ms"]
    assert measured["transfer_over_a_slow_link_ms"] > 9 * measured["transfer_ms"]


def bytes_beside_the_longest() -> float:
    """KV that is under way while that of the longest transfer is, itself apart."""
    requests = run("disaggregation").requests
    start, end, size = (requests[f"kv_transfer_{name}"] for name in ("start", "end", "bytes"))
    longest = np.nanargmax(end - start)
    beside = (start < end[longest]) & (end > start[longest])
    return float(size[beside].sum() - size[longest])


def test_half_of_the_gpus_for_prompts_make_first_tokens_wait() -> None:
    measured = measure()
    assert measured["ttft_of_pools_ms"] > 5 * measured["ttft_of_chunks_ms"]
