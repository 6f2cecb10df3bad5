"""Tensor parallelism: what NVLink gives and PCIe takes."""

from notebooks.gallery.tensor_parallel import measure


def test_nvlink_scales_and_pcie_does_not() -> None:
    measured = measure()
    assert measured["all_reduces_of_a_step"] == 2 * 32 + 1
    h100, l40s = measured["tpot_h100"], measured["tpot_l40s"]
    assert h100 == sorted(h100, reverse=True)
    assert h100[0] / h100[3] > 2.9
    assert l40s[1] < l40s[0]
    assert l40s[1] < l40s[2] < l40s[3]
    assert measured["communication_share_h100_tp8"] < 0.3
    assert measured["communication_share_l40s_tp4"] > 0.5
    assert measured["share_rtx_pro"][3] < measured["share_l40s"][3], "PCIe 5 moves more than PCIe 4"
    assert measured["ttft_h100_tp1_over_tp8"] > 2.5
    assert measured["ttft_l40s_tp4_over_tp1"] > 1.5
    assert measured["throughput_h100_tp8_over_eight_replicas"] < 0.5
