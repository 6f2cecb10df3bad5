"""Measured tables: read as they are at their points, sensible between and beyond them, and used where they hold."""

import csv
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.held_out import ask_points
from simserve.cost import build_step_cost, cost_level
from simserve.cost.attention import AttentionTime, layer_of
from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.collectives import half_of
from simserve.cost.curve import FloatArray
from simserve.cost.device import Device
from simserve.cost.gemm_table import ExpertsShape, GemmTable
from simserve.cost.grid import Table, filled, guessed, isotonic, read_table, rising
from simserve.cost.modelled import ModelledStepCost
from simserve.cost.sharding import sharding
from simserve.cost.tables import Tables, tables_of
from simserve.spec import resources
from simserve.spec.errors import ScenarioError
from simserve.spec.experts import ExpertParallelSpec
from simserve.spec.gpus import find_gpu, profiles, resolve_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds

MEASURED = [gpu for gpu in profiles() if gpu.tables]


def tables(gpu: GpuSpec) -> Tables:
    found = tables_of(gpu)
    assert found is not None
    return found


H100 = tables(find_gpu("h100-sxm-80gb"))


def scenario(model: str, gpu: str, *overrides: str) -> Scenario:
    return parse_scenario(
        f"""
        model: {model}
        workload:
          arrivals: {{process: poisson, rate: 1}}
          input: {{distribution: constant, value: 100}}
          output: {{distribution: constant, value: 10}}
          num_requests: 10
        cluster: {{gpu: {gpu}}}
        engine: {{max_model_len: 8192, num_gpu_blocks: 1000}}
        """,
        overrides,
    )


@pytest.mark.parametrize("gpu", MEASURED, ids=lambda gpu: gpu.name)
def test_tables_say_where_they_come_from(gpu: GpuSpec) -> None:
    assert gpu.tables == gpu.name
    assert "Apache-2.0" in gpu.sources["tables"]
    size = sum(path.stat().st_size for path in resources.folder("hardware_profiles").glob(f"{gpu.name}/*.csv"))
    assert 10_000 < size < 100_000


def test_another_table_is_another_device() -> None:
    """`profile_hash` covers the tables: two cards that differ in nothing else have two hashes."""
    gpu = find_gpu("h100-sxm-80gb")
    hashes = {gpu.model_copy(update={"tables": tables}).profile_hash for tables in (None, *(g.name for g in MEASURED))}
    assert len(hashes) == 1 + len(MEASURED)
    renamed = gpu.model_copy(update={"tables": "no-such-profile"})
    assert renamed.profile_hash != gpu.profile_hash


@pytest.mark.parametrize("gpu", MEASURED, ids=lambda gpu: gpu.name)
def test_measured_gemms_are_read_as_they_are(gpu: GpuSpec) -> None:
    """But where more rows took less time: there they are taken level, at the mean."""
    table = read_table(resources.folder("hardware_profiles") / gpu.name / "gemm.csv")
    errors = []
    for (dtype, n, k), times in table.rows.items():
        if dtype in {"bf16", "fp8"}:
            curve = tables(gpu).gemm(dtype, dtype, float(k), float(n))
            assert curve is not None
            errors.append(np.abs(curve(table.sizes) / times - 1))
    flat = np.concatenate(errors)
    flat = flat[~np.isnan(flat)]
    assert np.median(flat) < 1e-9
    assert np.percentile(flat, 90) < 0.1


@pytest.mark.parametrize("gpu", MEASURED, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("heads", [(32, 8), (8, 2), (8, 1)])
def test_measured_decodes_are_read_as_they_are(gpu: GpuSpec, heads: tuple[int, int]) -> None:
    table = read_table(resources.folder("hardware_profiles") / gpu.name / "decode_attention.csv")
    read = tables(gpu).decode(AttentionHeads(*heads, "bf16"))
    assert read is not None
    errors = []
    for (batch,), times in table.sub("bf16", *map(str, heads)).rows.items():
        pieces = read.pieces(int(batch))
        for length, time in zip(table.sizes, times, strict=True):
            if time > 0:
                errors.append(ticks_at(pieces, int(batch) * int(length)) * 1e-13 / time - 1)
    assert np.median(np.abs(errors)) < 0.01
    assert np.percentile(np.abs(errors), 90) < 0.1


def ticks_at(pieces: list[tuple[int, int, int]], context: int) -> int:
    return next(base + slope * context for until, base, slope in pieces if context <= until)


HELD_OUT = [
    *csv.DictReader((Path(__file__).parent / "data/held_out_attention.csv").read_text(encoding="utf-8").splitlines())
]
"""Measured attention that the tables do not hold (other heads, batches, lengths): a sample of the measurements that
`simserve profiles fit` goes through. Same source and licence as the tables."""


@pytest.mark.parametrize("gpu", MEASURED, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("operator", ["decode_attention", "prefill_attention"])
def test_attention_that_the_tables_do_not_hold(gpu: GpuSpec, operator: str) -> None:
    """Median error at most 5 %."""
    device = Device.of(gpu, tables(gpu))
    errors = []
    for row in HELD_OUT:
        if (row["operator"], row["gpu"]) == (operator, gpu.name):
            batch, length = int(row["batch"]), int(row["length"])
            heads = AttentionHeads(float(row["heads_q"]), float(row["heads_kv"]), row["kv_dtype"])
            time = AttentionTime(layer_of(heads), device)
            is_decode = operator == "decode_attention"
            ticks = time.decode(batch, batch * length) if is_decode else time.prefill([(length, 0)] * batch)
            errors.append(abs(to_seconds(ticks) / (1e-6 * float(row["time_us"])) - 1))
    assert len(errors) == 40
    assert np.median(errors) < 0.05


@pytest.mark.parametrize("gpu", MEASURED, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("kind", ["gemm", "moe", "collectives"])
def test_tables_without_a_tenth_of_their_points_find_them(gpu: GpuSpec, kind: str, tmp_path: Path) -> None:
    path = resources.folder("hardware_profiles") / gpu.name / f"{kind}.csv"
    if not path.exists():
        pytest.skip("not measured on this card")
    table = read_table(path)
    whole = {
        key: {int(size): 1e6 * time for size, time in zip(table.sizes, row.tolist(), strict=True) if time > 0}
        for key, row in table.rows.items()
    }
    errors = [predicted / measured - 1 for predicted, measured in ask_points(kind, gpu, whole, tmp_path)]
    assert len(errors) > 50
    stated = yaml.safe_load((path.parent / "held_out.yaml").read_text(encoding="utf-8"))[kind]
    assert len(errors) == stated["points"]
    assert np.median(np.abs(errors)) == pytest.approx(stated["median"], abs=0.001), "entries have four digits"
    assert np.median(np.abs(errors)) < 0.05


@given(st.sampled_from(MEASURED), st.floats(64, 40_000), st.floats(64, 200_000), st.floats(1, 20_000))
@settings(max_examples=60)
def test_gemms_never_take_less_for_more_rows(gpu: GpuSpec, inputs: float, outputs: float, rows: float) -> None:
    curve = tables(gpu).gemm("bf16", "bf16", inputs, outputs)
    assert curve is not None
    few, many = curve(np.array([rows, rows * 1.3]))
    assert 0 < few <= many * (1 + 1e-12)
    assert curve.is_beyond == (inputs > 16384)


def test_beyond_the_grid_a_gemm_takes_its_share_of_the_peak() -> None:
    curve = H100.gemm("bf16", "bf16", 4096, 4096)
    assert curve is not None
    edge, four_times = curve(np.array([8192.0, 32768.0]))
    assert four_times == pytest.approx(4 * edge)
    deep, deeper = (H100.gemm("bf16", "bf16", inputs, 8192) for inputs in (16384, 32768))
    assert deep is not None
    assert deeper is not None
    assert deeper(np.array([4096.0])) == pytest.approx(2 * deep(np.array([4096.0])), rel=0.005)  # but for the floor


def seconds_of_a_card(n: float, k: float, rows: FloatArray, reach: float) -> FloatArray:
    """5 us and a share of 1 TB/s and 300 TFLOP/s, with the bend at 300 rows."""
    seconds: FloatArray = 5e-6 + n * k * np.hypot(2e-12, 2 * rows / 3e14) / reach
    return seconds


@given(st.floats(1024, 8192), st.floats(1024, 8192), st.floats(1, 8192), st.floats(0.6, 1))
def test_gemms_between_measured_ones_bend_where_the_card_does(n: float, k: float, rows: float, reach: float) -> None:
    """What a card at some share of its rates takes is found again between powers of two; a chord is 3 % off."""
    powers = (1024, 2048, 4096, 8192)
    sizes, asked = np.logspace(0, 13, 14, base=2), np.array([rows])
    table: dict[tuple[str, ...], FloatArray] = {
        (str(a), str(b)): seconds_of_a_card(a, b, sizes, reach) for a in powers for b in powers
    }
    curve = GemmTable(Table(sizes, table), weight=2e-12, flop=1 / 3e14).curve(k, n)
    assert curve(asked) == pytest.approx(seconds_of_a_card(n, k, asked, reach), rel=0.01)


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=12))
def test_between_two_measured_numbers_of_rows_no_time_leaves_theirs(times: list[float]) -> None:
    sizes = np.geomspace(1, 2 ** (len(times) - 1), len(times))
    rows: dict[tuple[str, ...], FloatArray] = {(n, k): np.array(times) for n in "12" for k in "12"}
    curve = GemmTable(Table(sizes, rows), weight=2e-12, flop=1 / 3e14).curve(1, 2)
    assert curve(sizes) == pytest.approx(rising(np.array(times)))
    between = curve(np.geomspace(1.0, sizes[-1], 100))
    assert (np.diff(between) >= -1e-9 * between[1:]).all()


def test_a_wide_gemm_is_a_row_of_narrower_ones() -> None:
    head, half = (H100.gemm("bf16", "bf16", 4096, width) for width in (128_256, 64_128))
    assert head is not None
    assert half is not None
    assert head(np.array([1.0, 512.0])) == pytest.approx(2 * half(np.array([1.0, 512.0])))
    assert not head.is_beyond


def test_a_card_with_other_rates_reaches_the_same_shares_of_them() -> None:
    """`base: h100-sxm-80gb` with half the bandwidth: what reads weights takes twice as long, what computes as long."""
    slow = GpuSpec.model_validate(resolve_gpu({"base": "h100-sxm-80gb", "hbm_bandwidth": 3.35e12 / 2}))
    for table, factor in ((tables(slow), 2.0), (H100, 1.0)):
        curve = table.gemm("bf16", "bf16", 4096, 28_672)
        own = H100.gemm("bf16", "bf16", 4096, 28_672)
        assert curve is not None
        assert own is not None
        assert curve(np.array([1.0])) == pytest.approx(factor * own(np.array([1.0])))
        assert curve(np.array([4096.0])) == pytest.approx(own(np.array([4096.0])))


def test_other_heads_count_as_more_sequences() -> None:
    """32 KV heads over b sequences are 8 over 4 b: within 2 % on every card where both were measured."""
    wide, narrow = (H100.decode(AttentionHeads(4 * keys, keys, "bf16")) for keys in (32, 8))
    assert wide is not None
    assert narrow is not None
    for batch in (1, 4, 64):
        context = 1000 * batch
        assert ticks_at(wide.pieces(batch), context) == pytest.approx(
            ticks_at(narrow.pieces(4 * batch), 4 * context), rel=0.01
        )


def test_one_sequence_takes_no_more_than_of_twice_the_heads() -> None:
    """Two sequences start another kernel than one, so four KV heads are half of eight rather than twice two."""
    half, whole = (H100.decode(AttentionHeads(8 * keys, keys, "bf16")) for keys in (4, 8))
    assert half is not None
    assert whole is not None
    assert ticks_at(half.pieces(1), 1000) <= ticks_at(whole.pieces(1), 1000)


def test_experts_as_measured_and_as_near_as_measured() -> None:
    mixtral = ExpertsShape(4096, 14336, 2, 8, 2)
    measured = H100.experts("bf16", "bf16", mixtral)
    assert measured is not None
    assert not measured.is_beyond
    assert measured(np.array([1.0, 8192.0])) == pytest.approx([143e-6, 4241e-6], rel=0.01)
    twice = H100.experts("bf16", "bf16", mixtral._replace(hidden=8192))
    assert twice is not None
    assert twice.is_beyond
    assert twice(np.array([64.0])) == pytest.approx(2 * measured(np.array([64.0])), rel=0.2)


@pytest.mark.parametrize("gpu", MEASURED, ids=lambda gpu: gpu.name)
def test_a_step_takes_what_its_prompt_tokens_take_at_least(gpu: GpuSpec) -> None:
    """However a step's tokens are cut into prompts, it takes the time that was measured of so many; more take more."""
    device = Device.of(gpu, tables(gpu))
    table = tables(gpu).prefill(heads := AttentionHeads(32, 8, "bf16"))
    assert table is not None
    assert (np.diff(table.step) >= 0).all()
    time = AttentionTime(layer_of(heads), device)
    for tokens, seconds in zip(table.tokens.tolist(), table.step.tolist(), strict=True):
        for count in {1, 4, int(tokens)}:
            if tokens % count == 0:
                assert to_seconds(time.prefill([(int(tokens) // count, 0)] * count)) >= seconds * (1 - 1e-6)
    last = table.tokens[-1:]
    assert table.step_at(2 * last) == pytest.approx(2 * table.step_at(last))
    assert time.prefill([(1, 0)] * int(2 * last[0])) >= time.prefill([(1, 0)] * int(last[0]))


def test_holes_are_filled_and_falls_taken_level() -> None:
    nan = np.nan
    grid = np.array([[1.0, 2.0, 3.0], [2.0, nan, 4.0], [nan, 4.0, 5.0]])
    axes = (np.arange(3.0), np.arange(3.0))
    assert filled(grid, axes)[1, 1] == pytest.approx(3.0)
    assert filled(grid, axes)[2, 0] == pytest.approx(3.0)  # the mean of the nearest along both axes: 4 and 2
    assert rising(np.array([1.0, 4.0, 1.0, 9.0])) == pytest.approx([1, 2, 2, 9])


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=30)
def test_what_was_measured_is_not_guessed(seed: int, width: int, depth: int) -> None:
    """And what was not is the same whichever axis comes first, and lies where the whole lies."""
    random = np.random.default_rng(seed)
    grid = random.uniform(5, 6, (width, depth, 5))
    axes = tuple(np.log(np.cumsum(random.uniform(1, 9, size))) for size in grid.shape)
    missing = random.random(grid.shape) < 0.3
    missing[0, 0, 0] = False
    holes = np.where(missing, np.nan, grid)
    found = guessed(holes, axes)
    assert (found[~missing] == grid[~missing]).all()
    turned = guessed(holes.T, axes[::-1]).T
    assert turned == pytest.approx(found)
    assert guessed(holes + 1, axes) == pytest.approx(found + 1)
    assert (abs(found - 5.5) < 1).all()


def test_a_guess_averages_what_is_disturbed() -> None:
    """Beside disturbed measurements of a law that is a sum of one along each axis, nearer than lines along them are."""
    axes = tuple(np.log(2.0 ** np.arange(size)) for size in (8, 8, 12))
    law = np.sin(axes[0])[:, None, None] + np.cos(axes[1])[:, None] + np.maximum(axes[2], 4) / 2
    random = np.random.default_rng(1)
    missing = random.random(law.shape) < 0.1
    holes = np.where(missing, np.nan, law + random.normal(0, 0.05, law.shape))
    guesses, lines = (np.abs(fill(holes, axes) - law)[missing].mean() for fill in (guessed, filled))
    assert guesses < 0.8 * lines
    assert guesses < 0.05, "less than a measurement is off itself"


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.randoms())
def test_isotonic_values_are_the_nearest_that_never_fall(values: list[float], random: Random) -> None:
    given_, found = np.array(values), isotonic(np.array(values))
    assert (np.diff(found) >= -1e-9).all()
    assert found.sum() == pytest.approx(given_.sum(), abs=1e-9)
    assert isotonic(np.sort(given_)) == pytest.approx(np.sort(given_))
    other = np.sort([random.uniform(-100, 100) for _ in values])
    for rival in (other, np.sort(found + 0.01 * other), np.sort(given_)):
        assert ((found - given_) ** 2).sum() <= ((rival - given_) ** 2).sum() + 1e-9


@pytest.mark.parametrize(
    ("model", "gpu", "level"),
    [
        ("llama-3.1-8b", "h100-sxm-80gb", "kernels"),
        ("mixtral-8x7b", "h200-sxm-141gb", "kernels"),
        ("gpt-oss-120b", "b200-sxm-180gb", "kernels"),
        ("{config: llama-3.1-8b, weight_dtype: fp8}", "h100-sxm-80gb", "kernels"),
        ("{config: llama-3.1-8b, weight_dtype: fp8}", "a100-sxm-80gb", "datasheet"),
        ("{config: llama-3.1-8b, weight_dtype: int4}", "h100-sxm-80gb", "datasheet"),
        ("{config: llama-3.1-8b, weight_bytes: 14 GB}", "h100-sxm-80gb", "datasheet"),
        ("deepseek-v3", "h200-sxm-141gb", "datasheet"),
        ("llama-3.1-8b", "rtx-4090-24gb", "datasheet"),
    ],
)
def test_auto_takes_kernels_where_all_was_measured(model: str, gpu: str, level: str) -> None:
    assert cost_level(scenario(model, gpu)) == level
    assert cost_level(scenario(model, gpu, "cost.level=datasheet")) == "datasheet"
    assert cost_level(scenario(model, f"{{base: {gpu}, tables: null}}")) == "datasheet"
    if level == "datasheet" and "4090" not in gpu:
        assert cost_level(scenario(model, gpu, "cost.level=kernels")) == "kernels"


def log(prefill: int, decodes: int, context: int, steps: int) -> dict[str, Any]:
    fields = {"prefill_tokens": prefill, "decodes": decodes, "context_tokens": context, "steps": steps}
    return {name: np.array([float(value)]) for name, value in fields.items()}


def test_steps_beyond_the_tables_are_counted() -> None:
    cost = build_step_cost(scenario("llama-3.1-8b", "h100-sxm-80gb"))
    assert cost.extrapolated_steps(log(8000, 192, 192_000, 1)) == 0
    assert cost.extrapolated_steps(log(8001, 192, 192_000, 1)) == 1
    assert cost.extrapolated_steps(log(0, 600, 600_000, 7)) == 7
    assert isinstance(cost, ModelledStepCost)
    last = cost.forward.times[0].measured_context(4)
    assert last is not None
    assert last >= 4 * 32_768
    assert cost.extrapolated_steps(log(0, 4, last - 8, 10)) == 7
    datasheet = build_step_cost(scenario("llama-3.1-8b", "h100-sxm-80gb", "cost.level=datasheet"))
    assert datasheet.extrapolated_steps(log(0, 600, 600_000, 7)) == 0


def test_model_with_a_deeper_gemm_than_measured_is_all_extrapolated() -> None:
    cost = build_step_cost(scenario("llama-3.1-70b", "h200-sxm-141gb"))
    assert cost.extrapolated_steps(log(0, 1, 100, 5)) == 5


def test_tables_of_an_unknown_profile_are_refused(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text("base: h100-sxm-80gb\ntables: h100-sxm-81gb\n", encoding="utf-8")
    with pytest.raises(ValueError, match="h100-sxm-81gb"):
        build_step_cost(scenario("llama-3.1-8b", str(profile)))


@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "h200-sxm-141gb"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_each_version_sums_with_its_kernel(gpu: str, ranks: int) -> None:
    """The custom kernel is one, whoever takes the large messages; FlashInfer's is faster where it is used at all."""
    newest, symmetric, custom = (
        tables(find_gpu(gpu)).all_reduce(ranks, kernel) for kernel in ("flashinfer", "symm_mem", "custom")
    )
    assert newest is not None
    assert symmetric is not None
    assert custom is not None
    for size in (2**exponent for exponent in range(10, 18)):
        assert custom[size] == pytest.approx(symmetric[size], rel=0.15)
        assert newest[size] < 0.92 * custom[size]
    two_shots = [2**exponent for exponent in range(18, 21)]
    if ranks == 8:
        assert all(custom[size] > 1.1 * symmetric[size] for size in two_shots)
        assert custom[2**18] > 1.8 * custom[2**17], "one shot to 128 KiB, two from 256 KiB on"
    else:
        assert all(custom[size] == pytest.approx(symmetric[size], rel=0.1) for size in two_shots)


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "b200-sxm-180gb"])
def test_a_kernel_that_was_measured_alone_stands_for_all(gpu: str) -> None:
    for ranks in (2, 8):
        assert tables(find_gpu(gpu)).all_reduce(ranks, "custom") == tables(find_gpu(gpu)).all_reduce(ranks)


@pytest.mark.parametrize(("gpu", "differs"), [("h100-sxm-80gb", True), ("h200-sxm-141gb", True), ("l40s-48gb", False)])
def test_untuned_decodes_over_fp8_take_the_time_of_bf16(gpu: str, differs: bool) -> None:
    untuned, tuned = (tables_of(find_gpu(gpu), tuned_fp8_decode=each) for each in (False, True))
    assert untuned is not None
    assert tuned is not None
    fp8, bf16 = (untuned.decode(AttentionHeads(64, 8, dtype)) for dtype in ("fp8", "bf16"))
    own = tuned.decode(AttentionHeads(64, 8, "fp8"))
    assert fp8 is not None
    assert bf16 is not None
    assert own is not None
    assert (fp8.pieces(64) == bf16.pieces(64)) == differs
    assert (fp8.pieces(64) == own.pieces(64)) != differs


def test_a_scenario_names_the_kernels_of_its_version() -> None:
    """16 sequences of Llama-3.3-70B send 256 KiB: past one shot among eight GPUs. KV halves nothing where untuned."""
    llama = ("{config: llama-3.3-70b, weight_dtype: fp8, kv_dtype: fp8}", "h200-sxm-141gb")

    def decode(ranks: int, *overrides: str) -> int:
        return (
            build_step_cost(scenario(*llama, f"cluster.tensor_parallel={ranks}", *overrides)).decode(16).at(64_000).gpu
        )

    newest, symmetric, custom = (decode(8, f"cost.all_reduce={each}") for each in ("flashinfer", "symm_mem", "custom"))
    assert decode(8) == newest < symmetric < custom
    assert to_seconds(custom - newest) == pytest.approx(161 * 9.8e-6, rel=0.05)
    assert decode(1, "cost.all_reduce=custom") == decode(1)
    assert decode(1, "cost.fp8_decode=untuned") > decode(1)
    with pytest.raises(ScenarioError, match="all_reduce"):
        scenario(*llama, "cost.all_reduce=ring")


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "alltoall"])
@pytest.mark.parametrize("gpu", MEASURED, ids=lambda gpu: gpu.name)
def test_other_collectives_are_read_by_the_bytes_of_the_whole(gpu: GpuSpec, operation: str) -> None:
    """As measured between the smallest and the largest message, and beyond it at the rate of the largest."""
    table = read_table(resources.folder("hardware_profiles") / gpu.name / "collectives.csv")
    for ranks in (2, 4, 8):
        times = tables(gpu).collective(operation, ranks)
        assert times is not None
        row = table.rows[operation, str(ranks)]
        half = half_of(times, ranks)
        errors = np.abs(half(table.sizes[row > 0]) / row[row > 0] - 1)
        assert np.median(errors) < 0.01
        largest = np.array([float(max(times))])
        assert half(3 * largest) == pytest.approx(3 * half(largest))


def test_gpus_exchange_what_was_measured_over_the_same_links() -> None:
    """A card with other links has the halves of its own all-reduce, and the rate of its links."""
    h100 = find_gpu("h100-sxm-80gb")
    experts = ExpertParallelSpec(communication="all_to_all")
    message = np.array([2.0**20, 2.0**24])
    own = sharding(h100, 4, H100, experts=experts)
    halves = {"all_gather": own.all_gather, "reduce_scatter": own.reduce_scatter, "alltoall": own.exchange}
    for operation, time in halves.items():
        measured = H100.collective(operation, 4)
        assert time is not None
        assert measured is not None
        assert time(message).tolist() == pytest.approx([measured[int(size)] for size in message])
    links = {"kind": "PCIe", "bandwidth": 64e9, "host_bandwidth": 55e9}
    other = GpuSpec.model_validate(resolve_gpu({"base": "h100-sxm-80gb", "interconnect": links}))
    apart = sharding(other, 4, tables(other), experts=experts)
    assert apart.exchange is not None
    assert apart.exchange(message)[1] == pytest.approx(0.75 * 2**24 / 64e9, rel=0.02), "and the shortest message"
    assert apart.all_gather is not None
    assert apart.all_reduce is not None
    assert apart.all_gather(message).tolist() == pytest.approx((apart.all_reduce(message / 2)).tolist())
