"""A changed GPU keeps no measurement that the change contradicts, and is of the size of a GPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.cost.build import build_step_cost, cost_level
from simserve.cost.device import Device
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu, profiles, resolve_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.load import parse_scenario
from simserve.spec.magnitudes import likely
from simserve.spec.ticks import to_seconds

TEXT = """
model: {model}
workload: {{input: 500, output: 100, num_requests: 50, arrivals: {{process: poisson, rate: 10}}}}
cluster: {{gpu: {gpu}, tensor_parallel: {ranks}}}
"""


def scenario(gpu: str, model: str = "llama-3.1-8b", ranks: int = 1):
    return parse_scenario(TEXT.format(model=model, gpu=gpu, ranks=ranks))


def changed(**changes) -> GpuSpec:
    return GpuSpec.model_validate(resolve_gpu(changes))


def step_ms(question, chunks, decodes, context) -> float:
    step = build_step_cost(question).step(chunks, decodes, context, decodes + len(chunks))
    return 1e3 * to_seconds(step.latency)


@pytest.mark.parametrize(("bandwidth", "expected"), [("32 GB/s", 61.9), ("1 GB/s", 1159)])
def test_an_all_reduce_over_other_links_is_not_the_measured_one(bandwidth, expected):
    """2,048 tokens of prompt beside 64 decodes of Llama-3.1-8B over two H100: what `all_reduce: null` gives."""
    links = f"kind: PCIe, bandwidth: {bandwidth}"
    times = [
        step_ms(scenario(f"{{base: h100-sxm-80gb, interconnect: {{{each}}}}}", ranks=2), [(2048, 0)], 64, 64 * 1024)
        for each in (links, f"{links}, all_reduce: null")
    ]
    assert times == pytest.approx([expected] * 2, rel=0.001)


@pytest.mark.parametrize("base", ["rtx-4090-24gb", "a100-sxm-80gb", "l4-24gb", "h100-sxm-80gb", "rtx-pro-6000-96gb"])
def test_a_decode_on_a_small_card_is_bound_by_its_memory_whatever_it_is_based_on(base):
    """Qwen2.5-7B in int4 on an RTX 3060: 59 tokens/s were measured."""
    gpu = f"{{base: {base}, hbm_bandwidth: 360 GB/s, peak_flops: {{bf16: 25.5 TFLOP/s}}, tables: null}}"
    question = scenario(gpu, "{config: qwen2.5-7b, weight_dtype: int4}")
    assert step_ms(question, [], 1, 500) == pytest.approx(17, rel=0.25)


rates = st.floats(0.05, 20).map(lambda factor: float(f"{factor:.3g}"))


@given(st.sampled_from([gpu for gpu in profiles() if gpu.tables]), rates, rates)
def test_shares_of_the_roofline_survive_a_change_of_rates(gpu, bandwidth, flops):
    """A GEMM that took k times its roof takes k times the roof of the changed card, and no less than for fewer rows."""
    peak = gpu.peak_flops["bf16"] * flops
    other = changed(base=gpu.name, hbm_bandwidth=gpu.hbm_bandwidth * bandwidth, peak_flops={"bf16": peak})
    rows = np.array(sorted(gpu.efficiency.gemm_mfu["bf16"]), dtype=float)
    (times, roofs), (own_times, own_roofs) = (times_and_roofs(each, rows) for each in (gpu, other))
    assert own_times == pytest.approx(np.maximum.accumulate(times / roofs * own_roofs), rel=1e-6)


@given(rates, rates)
def test_a_share_of_the_arithmetic_alone_is_that_on_any_card(bandwidth, flops):
    gpu = changed(base="ideal-3tb", hbm_bandwidth=3e12 * bandwidth, peak_flops={"bf16": 1e15 * flops})
    assert Device.of(gpu).share_of_peak("bf16", "bf16", np.array([1.0, 64.0, 4096.0])).tolist() == [1.0, 1.0, 1.0]


def times_and_roofs(gpu: GpuSpec, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds for one weight at the share of the peak, and at bandwidth and peak."""
    flops = 2 * rows / gpu.peak_flops["bf16"]
    return flops / Device.of(gpu).share_of_peak("bf16", "bf16", rows), np.maximum(2 / gpu.hbm_bandwidth, flops)


@pytest.mark.parametrize("gpu", profiles(), ids=lambda gpu: gpu.name)
def test_a_base_without_changes_is_itself(gpu):
    same = changed(base=gpu.name)
    assert same == gpu
    assert same.profile_hash == gpu.profile_hash
    price = changed(base=gpu.name, price_per_hour=2.5, memory=gpu.memory / 2)
    assert price.model_copy(update={"price_per_hour": None, "memory": gpu.memory}) == gpu


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"architecture": "sm_80"}, {"tables"}),
        ({"num_sms": 78}, {"tables"}),
        ({"efficiency": {"gemm_floor": "1 us"}}, {"tables"}),
        ({"efficiency": {"kernel_floor": "1 us"}}, set()),
        ({"hbm_bandwidth": "2 TB/s"}, {"expert_kernels"}),
        ({"peak_flops": {"fp8": "1 PFLOP/s"}}, {"expert_kernels"}),
        ({"interconnect": {"bandwidth": "900 GB/s"}}, {"all_reduce", "one_shot"}),
        ({"interconnect": {"kind": "PCIe"}}, {"all_reduce", "one_shot"}),
        ({"interconnect": {"kind": "NVLink 4", "bandwidth": "450 GB/s", "host_bandwidth": "25 GB/s"}}, set()),
        ({"memory": "40 GB", "host": {"per_step": "2 ms"}, "launch": {"kernel": "9 us"}}, set()),
    ],
)
def test_what_a_change_contradicts_falls_away_and_sources_say_so(change, gone):
    gpu, base = changed(base="h100-sxm-80gb", **change), find_gpu("h100-sxm-80gb")
    held = {"tables": gpu.tables, "expert_kernels": gpu.expert_kernels}
    held |= {"all_reduce": gpu.interconnect.all_reduce, "one_shot": gpu.interconnect.one_shot}
    assert {name for name, value in held.items() if not value} == gone
    assert any("left out" in words for words in gpu.sources.values()) == bool(gone)
    if not gone:
        assert gpu.sources == base.sources


def test_what_the_change_itself_states_stays():
    mine = {"times": {1024: "20 us"}, "bus_bandwidth": "20 GB/s"}
    links = {"kind": "PCIe", "bandwidth": "32 GB/s", "all_reduce": {2: mine}}
    gpu = changed(base="h100-sxm-80gb", interconnect=links, architecture="sm_80", tables="h100-sxm-80gb")
    assert {ranks: each.bus_bandwidth for ranks, each in gpu.interconnect.all_reduce.items()} == {2: 20e9}
    assert gpu.tables == "h100-sxm-80gb"
    shares = {"bf16": {64: 0.2}}
    own = changed(base="l4-24gb", hbm_bandwidth="900 GB/s", efficiency={"gemm_mfu": shares})
    assert own.efficiency.gemm_mfu["bf16"] == {64: 0.2}
    assert own.efficiency.measured_at.peak_flops.keys() == {"fp8"}, "the shares that were not stated"


def test_a_calibration_is_of_the_device_that_it_was_made_on():
    base = find_gpu("cpu-calibrated-example")
    assert changed(base=base.name, hbm_bandwidth="100 GB/s").calibrated is None
    assert changed(base=base.name, memory="1 GB", host={"delivery": "1 ms"}).calibrated == base.calibrated


def test_no_override_keeps_a_level_that_it_contradicts():
    assert cost_level(scenario("h100-sxm-80gb")) == "kernels"
    assert cost_level(scenario("{base: h100-sxm-80gb, hbm_bandwidth: 2 TB/s}")) == "kernels", "read for other rates"
    assert cost_level(scenario("{base: h100-sxm-80gb, architecture: sm_80}")) == "datasheet"


def test_an_all_reduce_faster_than_its_links_is_refused_where_all_is_spelled_out():
    """A saved scenario has no base any more."""
    saved = find_gpu("h100-sxm-80gb").model_dump()
    saved["interconnect"]["bandwidth"] = "1 GB/s"
    with pytest.raises(ValueError, match=r"among 2 at 305 GB/s was not measured over links of 1 GB/s; null leaves"):
        GpuSpec.model_validate(resolve_gpu(saved))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("hbm_bandwidth: 3.35", "hbm_bandwidth: 3.35 B/s is not a GPU; 3.35 TB/s?"),
        ("hbm_bandwidth: 3350", "3.35 kB/s is not a GPU; 3.35 TB/s?"),
        ("hbm_bandwidth: 3350 TB/s", "3350 TB/s is not a GPU; 3.35 TB/s?"),
        ("peak_flops: {bf16: 989}", "peak_flops.bf16: 989 FLOP/s is not a GPU; 989 TFLOP/s?"),
        ("peak_flops: {bf16: 989 PFLOP/s}", "is not a GPU; 989 TFLOP/s?"),
        ("memory: 80", "memory: 80 B is not the memory of a GPU; 80 GB?"),
        ("interconnect: {bandwidth: 450}", "interconnect.bandwidth: 450 B/s is not a link of a GPU; 450 GB/s?"),
        ("launch: {kernel: 6}", "launch.kernel: 6 s is not the time of a kernel or a launch; 6 us?"),
        ("efficiency: {gemm_floor: 5}", "efficiency.gemm_floor: 5 s is not the time of a kernel or a launch; 5 us?"),
    ],
)
def test_what_is_not_of_the_size_of_a_gpu_asks_for_its_unit(change, words):
    with pytest.raises(ScenarioError) as error:
        scenario(f"{{base: h100-sxm-80gb, {change}}}")
    assert words in str(error.value)
    assert "\n" not in str(error.value), "one error"


@given(st.floats(1e-3, 1e3), st.sampled_from([2e12, 5e14, 8e10]), st.integers(-6, 6))
def test_the_likely_number_has_the_digits_and_lies_next_to_what_is_usual(digits, typical, power):
    meant = likely(digits * 1000.0**power, typical)
    assert 1000**-0.5 * 0.999 <= meant / typical <= 1000**0.5 * 1.001
    exponent = np.log10(meant / digits)
    assert exponent == pytest.approx(3 * round(exponent / 3), abs=1e-6)


@given(
    st.sampled_from(["hbm_bandwidth", "memory", "bf16", "bandwidth", "host_bandwidth", "kernel", "kernel_floor"]),
    st.floats(min_value=1e-30, max_value=1e30),
)
def test_no_magnitude_ends_in_a_traceback(key, value):
    links = f"interconnect: {{{key}: {value!r}}}"
    text = {
        "bf16": f"peak_flops: {{bf16: {value!r}}}",
        "kernel": f"launch: {{kernel: {value!r}}}",
        "kernel_floor": f"efficiency: {{kernel_floor: {value!r}}}",
    }.get(key, links if key in {"bandwidth", "host_bandwidth"} else f"{key}: {value!r}")
    try:
        question = scenario(f"{{base: h100-sxm-80gb, {text}}}", ranks=2)
        step_ms(question, [(2048, 0)], 64, 64 * 1024)
    except ScenarioError as error:
        complaint = str(error)
    else:
        complaint = ""
    assert "\n" not in complaint


def test_widened_weights_are_multiplied_as_marlin_was_measured():
    """141 TFLOP/s on an A100 from 64 rows on; fewer rows are bound by reading the narrow weights."""
    gpu = find_gpu("a100-sxm-80gb")
    shares = Device.of(gpu).share_of_peak("int4", "bf16", np.array([64.0, 256.0, 4096.0]))
    assert shares * gpu.peak_flops["bf16"] == pytest.approx(141e12, rel=0.01)
    few = np.array([1.0, 16.0])
    compute = 2 * few / (gpu.peak_flops["bf16"] * Device.of(gpu).share_of_peak("int4", "bf16", few))
    assert (compute < 0.5 / gpu.hbm_bandwidth).all()
