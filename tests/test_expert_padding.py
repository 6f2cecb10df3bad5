"""Experts in MXFP4 with the zeros that kernels keep between their weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.cost.expert_padding import padded_share, tiles
from simserve.cost.memory import memory_ledger
from simserve.spec.load import parse_scenario

GIB = 2**30
SIZES = st.integers(32, 20_000)
GPUS = st.sampled_from(["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "gfx942", "gfx950", ""])


@given(SIZES, SIZES, GPUS, st.sampled_from([1, 2, 4, 8]))
def test_zeros_only_add_and_sizes_of_whole_tiles_have_none(hidden, width, gpu, ranks):
    tile = tiles(gpu)
    assert padded_share(hidden, width, gpu, ranks) >= 1
    assert padded_share(hidden * tile.hidden, width * ranks * tile.width, gpu, ranks) == 1


@given(SIZES, SIZES, GPUS)
def test_a_cut_expert_has_at_least_the_zeros_of_a_whole_one(hidden, width, gpu):
    shares = [padded_share(hidden, width, gpu, ranks) for ranks in (1, 2, 4, 8)]
    assert shares == sorted(shares)


@pytest.mark.parametrize(
    ("gpu", "ranks", "width", "hidden"),
    [
        ("sm_80", 1, 2944, 3072),  # Marlin
        ("sm_80", 4, 4 * 768, 3072),
        ("sm_90", 1, 2880, 2880),  # Triton
        ("sm_90", 4, 4 * 768, 2880),
        ("sm_100", 2, 2 * 1536, 3072),
        ("gfx942", 1, 3072, 3072),
    ],
)
def test_gpt_oss_has_the_sizes_that_vllm_rounds_up_to(gpu, ranks, width, hidden):
    """vLLM 0.33, fused_moe/oracle/mxfp4.py, mxfp4_round_up_hidden_size_and_intermediate_size."""
    assert padded_share(2880, 2880, gpu, ranks) * 2880 * 2880 == pytest.approx(width * hidden)


def test_gpt_oss_120b_on_four_a100_weighs_what_a_log_says():
    """A start-up log of vLLM 0.10.1 quotes 17.2217 GiB of weights a GPU; without the zeros it were 15.2 GiB.

    65,248,815,744 B of weights in all; 36 layers of 128 experts of three matrices in 4.25 bits. What is left (0.5 %) is
    what every GPU has a copy of: router, norms, biases of the second GEMM.
    """
    text = (
        "{model: gpt-oss-120b, cluster: {gpu: a100-sxm-80gb, tensor_parallel: 4}, engine: {max_model_len: 16384},"
        " workload: {arrivals: {process: poisson, rate: 1}, input: 10, output: 10, num_requests: 1}}"
    )
    assert memory_ledger(parse_scenario(text)).weights / GIB == pytest.approx(17.2217, rel=0.005)
    experts = 36 * 128 * 3 * 2880 * 2880 * (0.5 + 1 / 32)
    whole = 65_248_815_744 + experts * (padded_share(2880, 2880, "sm_80", 4) - 1)
    assert whole / 4 / GIB == pytest.approx(17.2217, rel=0.005)
    assert 65_248_815_744 / 4 / GIB < 0.9 * 17.2217
