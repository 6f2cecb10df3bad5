"""Batch tier: low priority fills the GPU, and the interactive class keeps its objective."""

from notebooks.gallery.batch_tier import measure


def test_batch_work_multiplies_throughput_within_the_objective_of_others() -> None:
    measured = measure()
    assert 9 < measured["throughput_factor"] < 11
    assert measured["p95_ttft_alone_ms"] < measured["p95_ttft_priority_ms"] / 10
    assert measured["p95_ttft_priority_ms"] < 500
    assert measured["p95_tpot_priority_ms"] < 40
    assert measured["p95_ttft_fcfs_ms"] > 15 * measured["p95_ttft_priority_ms"]
    assert measured["objective_met_with_priority"] == 1
    assert measured["objective_met_fcfs"] == 0
    assert measured["tokens_by_rate"][-1] > 0.95 * max(measured["tokens_by_rate"])
