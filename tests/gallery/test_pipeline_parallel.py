"""Pipeline parallelism: stages against slices over two links, and bubbles."""

from notebooks.gallery.pipeline_parallel import measure


def test_stages_spare_the_link_and_cost_every_token_all_of_them() -> None:
    measured = measure()
    assert measured["prompts_of_stages_over_slices_pcie"] > 4
    assert 1.0 < measured["prompts_of_stages_over_slices_nvlink"] < 2
    assert 2 < measured["token_of_stages_over_slices_nvlink"] < 4
    # one micro-batch on four stages, less the host's share of each step
    assert 0.2 < measured["busy_together"] <= 0.25
    assert measured["busy_in_four"] > 0.85
    assert 0.9 < measured["tokens_in_four_over_together"] < 1.3
