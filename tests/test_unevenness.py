"""Decodes of unequal context: what the longest of them costs the others."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_text import scenario

from simserve.cost.build import modelled_step_cost
from simserve.cost.unevenness import Unevenness
from simserve.simulation import simulate

UNEVEN = Unevenness.of(5.5, 3.8)
LENGTHS = st.lists(st.integers(1, 20_000), min_size=1, max_size=300)


def balanced(lengths: list[int], *, mixed: bool = False) -> int:
    return UNEVEN.balanced(len(lengths), sum(lengths), max(lengths), mixed=mixed)


@given(LENGTHS, st.booleans(), st.integers(0, 5000))
def test_a_batch_counts_as_an_even_one_of_more_context(lengths: list[int], mixed: bool, later: int) -> None:
    """Never less than its own context, nor more than if all were as long; and decoding on adds just what it adds."""
    extra = balanced(lengths, mixed=mixed) - sum(lengths)
    assert 0 <= extra <= len(lengths) * max(lengths) - sum(lengths)
    assert balanced([length + later for length in lengths], mixed=mixed) == sum(lengths) + later * len(lengths) + extra
    assert balanced([lengths[0]] * len(lengths), mixed=mixed) == lengths[0] * len(lengths)
    assert balanced([*lengths, max(lengths) + later], mixed=mixed) >= balanced([*lengths, max(lengths)], mixed=mixed)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 200))
def test_a_shifted_cost_is_the_cost_of_more_context(context: int, more: int, decodes: int) -> None:
    cost = modelled_step_cost(scenario("cluster.gpu=rtx-pro-6000-96gb")).decode(decodes)
    assert cost.shifted(more).ticks(context) == cost.ticks(context + more)


def time_of_decodes(gpu: str, lengths: list[int], trace: Path) -> float:
    """GPU seconds of the steps without prompts, where all requests come at once and get 200 tokens."""
    trace.write_text("arrival,input_len,output_len\n" + "".join(f"0,{length},200\n" for length in lengths))
    steps = simulate(scenario(f"workload={{trace: {{file: {trace}, format: csv}}}}", f"cluster.gpu={gpu}")).steps
    return float(steps["gpu_time"][steps["prefill_tokens"] == 0].sum())


@pytest.mark.parametrize(
    ("gpu", "counts"), [("rtx-pro-6000-96gb", True), ("a100-sxm-80gb", True), ("h100-sxm-80gb", False)]
)
def test_one_long_sequence_holds_up_the_batch_under_flash_attention_2(gpu: str, counts: bool, tmp_path: Path) -> None:
    """31 prompts of 800 tokens and one of 7,200 against 32 of 1,000: the same context."""
    uneven = time_of_decodes(gpu, [7200] + [800] * 31, tmp_path / "uneven.csv")
    even = time_of_decodes(gpu, [1000] * 32, tmp_path / "even.csv")
    assert (uneven > 1.1 * even) == counts
