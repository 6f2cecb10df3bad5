"""GPU profiles: complete, physical, each number with its source, and changed without touching the rest."""

import numpy as np
import pytest

from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu, profiles, read_gpu, resolve_gpu
from simserve.spec.hardware import GpuSpec

REAL = [gpu for gpu in profiles() if gpu.name != "ideal-3tb" and gpu.calibrated is None]
GIB = 2**30


def by_name(gpu):
    return gpu.name


def test_the_gpus_that_people_ask_for_are_there():
    names = {gpu.name for gpu in profiles()}
    wanted = "a100-sxm-80gb h100-sxm-80gb h200-sxm-141gb b200-sxm-180gb l40s-48gb l4-24gb rtx-4090-24gb mi300x-192gb"
    assert names >= {*wanted.split(), "rtx-pro-6000-96gb"}


@pytest.mark.parametrize(
    ("name", "bandwidth", "bf16", "memory"),
    [
        ("a100-sxm-80gb", 2.039e12, 312e12, 79.25),
        ("h100-sxm-80gb", 3.35e12, 989.4e12, 79.19),
        ("h200-sxm-141gb", 4.8e12, 989.4e12, 139.8),
        ("b200-sxm-180gb", 8e12, 2250e12, 178.36),
        ("l40s-48gb", 864e9, 362e12, 44.4),
        ("l4-24gb", 300e9, 121e12, 22.03),
        ("rtx-4090-24gb", 1.008e12, 165.2e12, 23.517),
        ("mi300x-192gb", 5.3e12, 1307.4e12, 191.98),
        ("a100-sxm-40gb", 1.555e12, 312e12, 39.49),
        ("a100-pcie-80gb", 1.935e12, 312e12, 79.25),
        ("h100-pcie-80gb", 2.039e12, 756e12, 79.19),
        ("h100-nvl-94gb", 3.938e12, 835.5e12, 93.1),
        ("h20-96gb", 4e12, 148e12, 95.22),
        ("h20-141gb", 4.8e12, 148e12, 139.8),
        ("gh200-96gb", 4e12, 989.4e12, 94.5),
        ("gh200-144gb", 4.9e12, 989.4e12, 142.8),
        ("l40-48gb", 864e9, 181.05e12, 44.4),
        ("rtx-6000-ada-48gb", 960e9, 364.2e12, 47.5),
        ("a10g-24gb", 600e9, 70e12, 22.06),
        ("rtx-3090-24gb", 936e9, 71e12, 23.69),
        ("rtx-5090-32gb", 1.792e12, 209.5e12, 31.36),
        ("mi325x-256gb", 6e12, 1307.4e12, 255.98),
        ("mi355x-288gb", 8e12, 2516.6e12, 287.98),
        ("b300-sxm-288gb", 8e12, 2250e12, 267.69),
        ("gb200-186gb", 8e12, 2500e12, 184.31),
        ("gb300-279gb", 8e12, 2500e12, 276.5),
    ],
)
def test_data_sheet_numbers(name, bandwidth, bf16, memory):
    gpu = find_gpu(name)
    assert gpu.hbm_bandwidth == bandwidth
    assert gpu.peak_flops["bf16"] == bf16
    assert gpu.memory / GIB == pytest.approx(memory, abs=0.001)


@pytest.mark.parametrize("gpu", REAL, ids=by_name)
def test_formats_are_those_of_the_architecture(gpu):
    """No fp8 on Ampere, fp4 on Blackwell and CDNA 4 alone; a peak for twice the bits is at most half as high."""
    formats, architecture = set(gpu.peak_flops), gpu.architecture
    assert ("fp8" in formats) == (architecture not in {"sm_80", "sm_86"})
    assert ("nvfp4" in formats) == (architecture in {"sm_100", "sm_103", "sm_120"})
    assert ("mxfp4" in formats) == (architecture in {"sm_100", "sm_103", "sm_120", "gfx950"})
    assert gpu.peak_flops["bf16"] == gpu.peak_flops["fp16"]
    assert gpu.peak_flops.get("fp8", np.inf) > 1.99 * gpu.peak_flops["bf16"]


@pytest.mark.parametrize("gpu", [gpu for gpu in REAL if gpu.tables is None], ids=by_name)
def test_what_was_measured_on_another_card_is_not_claimed(gpu):
    assert "not measured" in gpu.provenance or "default" in gpu.provenance or "kernel measurements" in gpu.provenance
    assert "tables" not in gpu.sources or "left out" in gpu.sources["tables"]
    assert not gpu.expert_kernels or gpu.tables


@pytest.mark.parametrize("gpu", REAL, ids=by_name)
def test_every_group_of_numbers_states_its_source(gpu):
    groups = {"memory", "hbm_bandwidth", "peak_flops", "l2_bytes", "efficiency", "interconnect", "launch", "host"}
    assert groups | {"framework_bytes"} <= gpu.sources.keys()
    assert all(gpu.sources.values())
    assert gpu.provenance


@pytest.mark.parametrize("gpu", profiles(), ids=by_name)
def test_names_are_those_of_the_folders(gpu):
    assert find_gpu(gpu.name) is gpu


@pytest.mark.parametrize("gpu", REAL, ids=by_name)
def test_measured_shares_cover_every_format_with_a_peak_of_its_own(gpu):
    assert gpu.efficiency.hbm_gemm.keys() == gpu.efficiency.gemm_mfu.keys()
    assert "bf16" in gpu.efficiency.gemm_mfu
    assert gpu.efficiency.gemm_mfu.keys() <= gpu.peak_flops.keys()


@pytest.mark.parametrize("gpu", REAL, ids=by_name)
def test_more_rows_never_take_less_time(gpu):
    """Rows over the share of the peak they reach is the time of a GEMM: it must not fall."""
    for table in (*gpu.efficiency.gemm_mfu.values(), gpu.efficiency.prefill_attention_mfu):
        times = [rows / share for rows, share in sorted(table.items())]
        assert times == sorted(times)


@pytest.mark.parametrize("gpu", REAL, ids=by_name)
def test_larger_messages_never_take_less_time(gpu):
    assert gpu.interconnect.all_reduce.keys() == {2, 4, 8}
    for ranks, reduce in gpu.interconnect.all_reduce.items():
        times = [time for _, time in sorted(reduce.times.items())]
        assert times == sorted(times)
        assert reduce.floor == times[0]
        largest = max(reduce.times)
        beyond = 2 * largest * 2 * (ranks - 1) / ranks / reduce.bus_bandwidth
        assert beyond > reduce.times[largest], "the bus bandwidth goes on from where the table ends"


@pytest.mark.parametrize("gpu", [gpu for gpu in REAL if gpu.interconnect.one_shot], ids=by_name)
def test_one_shot_is_for_small_messages(gpu):
    """More ranks mean more copies to send, so that large messages take longer; small ones wait for each other alone."""
    for ranks, reduce in gpu.interconnect.one_shot.items():
        times = [time for _, time in sorted(reduce.times.items())]
        assert times == sorted(times)
        assert times[-1] > times[-2], "the last two give the rate beyond"
        assert times[0] < gpu.interconnect.all_reduce[ranks].floor * 1.05
    at_largest = [reduce.times[2**19] for _, reduce in sorted(gpu.interconnect.one_shot.items())]
    assert at_largest == sorted(at_largest)


@pytest.mark.parametrize("gpu", REAL, ids=by_name)
def test_links_are_slower_than_memory(gpu):
    assert gpu.interconnect.host_bandwidth <= gpu.interconnect.bandwidth < gpu.hbm_bandwidth


def test_vllm_classes():
    assert find_gpu("a100-sxm-80gb").vllm_class == "standard"
    assert find_gpu("h100-sxm-80gb").vllm_class == "large"
    assert find_gpu("b200-sxm-180gb").vllm_class == "xlarge"
    blackwell = {gpu.name for gpu in profiles() if gpu.is_datacenter_blackwell}
    assert blackwell == {"b200-sxm-180gb", "b300-sxm-288gb", "gb200-186gb", "gb300-279gb"}


def test_the_ideal_device_adds_nothing_to_bandwidth():
    gpu = find_gpu("ideal-3tb")
    assert gpu.hbm_bandwidth == 3e12
    assert set(gpu.efficiency.hbm_gemm.values()) == {1.0}
    assert not any(gpu.host.model_dump().values())
    assert not any(gpu.launch.model_dump().values())


def test_changes_of_a_base_leave_the_rest():
    base = find_gpu("h100-sxm-80gb")
    changes = {"base": "h100-sxm-80gb", "efficiency": {"gemm_floor": "1 us", "prefill_attention_mfu": {1: 0.5}}}
    gpu = GpuSpec.model_validate(resolve_gpu(changes))
    assert gpu.efficiency.gemm_floor == 1e-6
    assert gpu.efficiency.prefill_attention_mfu == {1: 0.5}, "a table is one value"
    assert gpu.efficiency.gemm_mfu == base.efficiency.gemm_mfu
    assert gpu.memory == base.memory


def test_the_hash_changes_with_any_number_and_with_no_word():
    gpu = find_gpu("h100-sxm-80gb")
    assert gpu.model_copy(update={"provenance": "elsewhere", "sources": {}}).profile_hash == gpu.profile_hash
    changed = {"base": gpu.name, "efficiency": {"gemm_mfu": {"bf16": {64: 0.168}}}}
    assert GpuSpec.model_validate(resolve_gpu(changed)).profile_hash != gpu.profile_hash
    assert len({gpu.profile_hash for gpu in profiles()}) == len(profiles())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"efficiency": {"hbm_gemm": {"bfp16": 0.8}}}, "'bfp16' is not a number format"),
        ({"efficiency": {"hbm_gemm": {"bf16": 0}}}, "greater than 0"),
        ({"efficiency": {"prefill_attention_mfu": {}}}, "at least 1 item"),
        ({"efficiency": {"gemm_mfu": {"bf16": {0: 0.5}}}}, "greater than or equal to 1"),
        ({"memory": 0}, "greater than 0"),
        ({"hbm_bandwidth": "3 TB"}, "bytes per second"),
    ],
)
def test_numbers_that_no_card_has_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        GpuSpec.model_validate(resolve_gpu({"base": "l4-24gb", **change}))


def test_a_profile_file_with_a_fault_is_named_with_its_line(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text("base: l4-24gb\nname: mine\nmemroy: 48 GiB\n")
    with pytest.raises(ScenarioError, match=r"profile\.yaml:3: memroy: unknown key 'memroy'; did you mean 'memory'\?"):
        read_gpu(tmp_path)
    path.write_text("name: mine\n")
    with pytest.raises(ScenarioError, match="memory: is needed and not given"):
        read_gpu(path)
    path.write_text("- 3\n")
    with pytest.raises(ScenarioError, match="expected a mapping"):
        read_gpu(path)
