"""Tables of measured runs: rows to scenarios, predictions, errors and the files that hold them."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from measured_rows import CLOSED_LOOP, COLUMNS, OPEN_LOOP, write_rows
from typer.testing import CliRunner

from simserve.cli import app
from simserve.cost.build import build_step_cost
from simserve.cost.sharding import sharding
from simserve.cost.tables import tables_of
from simserve.planning.executor import SerialExecutor
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.ticks import to_seconds
from simserve.spec.workload import ClosedLoop, Poisson, UniformLength
from simserve.validation.engine_versions import Stack, family, stack_of, stacks
from simserve.validation.errors import errors_of, false_saturations, running_at_once, summary_of
from simserve.validation.measured import METRICS, MeasuredRun, read_measured
from simserve.validation.prediction import Prediction, predict
from simserve.validation.roofline import roofline_tpot
from simserve.validation.scenario_of_row import NotModelledError, RowScenario, catalogue_name, scenario_of_row
from simserve.validation.table import TableReport, chosen_rows, validate_table


def run_of(**cells: str) -> MeasuredRun:
    base = CLOSED_LOOP if cells.get("arrival_process") == "closed-loop" else OPEN_LOOP
    texts = dict.fromkeys(COLUMNS, "") | base | cells
    return MeasuredRun(texts, {name: float(texts[name]) for name in METRICS if texts.get(name)})


def row_of(**cells: str) -> RowScenario:
    return scenario_of_row(run_of(**cells))


def test_a_table_is_read_with_its_measured_values(tmp_path: Path) -> None:
    rows = read_measured(write_rows(tmp_path / "t.csv", OPEN_LOOP, CLOSED_LOOP))
    assert [row.name for row in rows] == ["made-up-s0", "made-up-c8"]
    assert rows[0].measured == {"ttft_mean_ms": 25, "ttft_p99_ms": 40, "tpot_mean_ms": 7.5, "e2e_mean_ms": 200}
    assert rows[0].count("max_num_seqs") == 128
    assert rows[1].count("max_model_len") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "has no column id"),
        (",".join(COLUMNS) + "\nx,A\n", "line 2: has not as many fields"),
        (",".join(COLUMNS) + "\n" + ",".join("x" for _ in COLUMNS) + "\n", "ttft_mean_ms: expected a number, got 'x'"),
    ],
)
def test_a_table_that_is_none_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        read_measured(path)


def test_no_row_of_a_tier_is_an_error(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "t.csv", OPEN_LOOP)
    with pytest.raises(ScenarioError, match="no row of tier C"):
        chosen_rows(path, "C")


def test_an_open_loop_row_says_everything_that_its_scenario_needs() -> None:
    row = row_of()
    engine, workload = row.scenario.engine, row.scenario.workload
    assert (engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len) == (128, 2048, 4096)
    assert engine.gpu_memory_utilization == 0.9
    assert engine.enable_prefix_caching
    assert engine.async_scheduling, "vLLM's default from 0.14 on"
    assert workload.arrivals == Poisson(process="poisson", rate=8, normalize=True), "the generator rescales its gaps"
    assert workload.shared_prefix is not None
    assert (workload.shared_prefix.groups, workload.shared_prefix.length) == (45, 547)
    assert row.hits
    assert row.scenario.cluster.gpu.name == "h100-sxm-80gb"


def test_a_second_stage_finds_its_prompts_in_the_cache() -> None:
    first, second = row_of(), row_of(id="made-up-s1")
    assert first.scenario.run.warmup == 0
    assert second.warmup == 270
    assert second.scenario.workload.num_requests == 200 + second.warmup
    assert second.scenario.run.warmup == pytest.approx(second.warmup / 8)


def test_only_a_warm_cache_has_every_prompt() -> None:
    """Who comes first with a prompt waits longer, at least by what the whole of it takes beyond its last block."""
    cold, warm = (predict(run_of(id=name, n_requests="100")).values for name in ("x-s0", "x-s1"))
    cost = build_step_cost(row_of(id="x-s0").scenario)
    whole, rest = (cost.step([chunk], 0, 0, 1).latency for chunk in ((547, 0), (16, 531)))
    assert cold["ttft_p99_ms"] - warm["ttft_p99_ms"] > 1e3 * to_seconds(whole - rest)


def test_a_closed_loop_row_takes_what_its_stack_has() -> None:
    row = row_of(arrival_process="closed-loop")
    workload, engine = row.scenario.workload, row.scenario.engine
    assert workload.arrivals == ClosedLoop(process="closed_loop", users=8)
    assert workload.num_requests == 100
    assert workload.input == UniformLength(distribution="uniform", min=102, max=128)
    assert workload.output == UniformLength(distribution="uniform", min=51, max=64)
    assert engine.max_num_batched_tokens == 8192
    assert engine.cuda_graph.capture_sizes[-1] == 2048, "the launch script captures more than the default"
    assert row.scenario.run.warmup == 0
    assert any("max_num_batched_tokens 8192" in each for each in row.assumed), "what a row does not state is listed"
    assert row.scenario.model.weight_dtype == "mxfp4", "fp4 of gpt-oss is its checkpoint's own format"
    assert row.scenario.model.kv_dtype == "fp8"


@pytest.mark.parametrize(
    ("gpu", "version", "kv_dtype", "backend"),
    [
        ("B200-SXM-180GB", "0.15.1", "fp8", "flashinfer_trtllm_afp8"),
        ("H200-SXM-141GB", "0.18.0", "bf16", "marlin"),
    ],
)
def test_a_launch_script_says_what_a_dump_of_runs_leaves_out(
    gpu: str, version: str, kv_dtype: str, backend: str
) -> None:
    """InferenceX's dump calls the weights of gpt-oss nvfp4 and does not state the KV cache's format."""
    cells = {
        "source": "InferenceX dump",
        "gpu": gpu,
        "engine_version": version,
        "weight_dtype": "nvfp4",
        "kv_dtype": "",
    }
    row = row_of(arrival_process="closed-loop", **cells)
    assert (row.scenario.model.weight_dtype, row.scenario.model.kv_dtype) == ("mxfp4", kv_dtype)
    assert row.scenario.engine.moe_backend == backend
    assert any(each.startswith("kv_dtype") for each in row.assumed) == (kv_dtype == "fp8")


@pytest.mark.parametrize(
    ("source", "model", "sampling", "penalties"),
    [
        ("inference-sim/training", "Qwen/Qwen2.5-7B-Instruct", "top_p", True),
        ("inference-sim/training", "Qwen/Qwen3-14B", "top_p", False),
        ("inference-sim/training", "mistralai/Mistral-Nemo-Instruct-2407", "greedy", False),
        ("InferenceMAX", "Qwen/Qwen2.5-7B-Instruct", "greedy", False),
    ],
)
def test_sampling_is_the_model_s_where_the_load_generator_leaves_it(
    source: str, model: str, sampling: str, penalties: bool
) -> None:
    cost = row_of(source=source, model=model).scenario.cost
    assert (cost.sampling, cost.penalties) == (sampling, penalties)


def test_what_a_row_states_outweighs_the_stack() -> None:
    row = row_of(arrival_process="closed-loop", max_num_batched_tokens="4096", gpu_mem_util="0.8")
    assert row.scenario.engine.max_num_batched_tokens == 4096
    assert row.scenario.engine.gpu_memory_utilization == 0.8
    assert not any("gpu_memory_utilization" in each for each in row.assumed)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"engine": "sglang"}, "only vLLM's scheduler"),
        ({"pp": "2"}, "pipeline parallelism"),
        ({"ep": "8"}, "expert parallelism"),
        ({"spec_decode": "mtp"}, "speculative decoding"),
        ({"gpu": "MI999"}, "has no profile"),
        ({"model": "nobody/nothing-7b"}, "not in the catalogue"),
        ({"model": "meta-llama/Llama-4-Behemoth-288B-16E"}, "not in the catalogue"),
        ({"arrival_process": "trace replay"}, "are a list"),
        ({"arrival_process": "chaos"}, "cannot be repeated"),
        ({"isl_spec": "", "isl_mean_tok": ""}, "isl_mean_tok is not stated"),
        ({"arrival_process": "all-at-t0", "n_requests": ""}, "how many is not stated"),
    ],
)
def test_what_cannot_be_modelled_is_refused_with_the_reason(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(NotModelledError, match=reason):
        row_of(**cells)
    assert reason.rsplit(maxsplit=1)[-1] in predict(run_of(**cells)).reason


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-2-70b-hf", "llama-2-70b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", "llama-4-scout-17b-16e"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"),
        ("01-ai/Yi-34B", "yi-34b"),
    ],
)
def test_models_of_the_hub_have_their_name_in_the_catalogue(model: str, name: str) -> None:
    assert catalogue_name(model) == name


def test_every_version_finds_one_stack() -> None:
    assert stack_of("0.13.0", "InferenceMAX agg").name != stack_of("0.13.0", "a blog").name
    assert stack_of("", "InferenceX dump").name != stack_of("0.11.2", "InferenceMAX").name
    assert stack_of("0.15.1", "any").engine["async_scheduling"]
    assert not stack_of("0.9.2", "any").engine["async_scheduling"]
    assert len({stack.name for stack in stacks()}) == len(stacks())


def test_settings_that_a_server_never_read_are_those_of_its_version() -> None:
    """vLLM ignores a file given as --config=FILE, and so did the H100 servers of one launch script."""
    cells = {
        "source": "InferenceX dump", "engine_version": "", "model": "meta-llama/Llama-3.1-70B", "tp": "8",
        "weight_dtype": "fp8", "kv_dtype": "fp8", "prefix_caching": "off", "max_num_seqs": "64",
    }  # fmt: skip
    ignored, read = (row_of(**cells, gpu=gpu) for gpu in ("H100-SXM-80GB", "H200-SXM-141GB"))
    assert ignored.scenario.model.kv_dtype == ignored.scenario.model.activation_dtype != "fp8"
    assert not ignored.scenario.engine.async_scheduling
    assert ignored.scenario.engine.enable_prefix_caching
    assert ignored.scenario.engine.max_model_len == ignored.scenario.model.max_position_embeddings
    assert ignored.scenario.engine.max_num_seqs == 64
    assert any("kv_dtype" in each for each in ignored.assumed)
    assert ignored.run.text("kv_dtype") == "fp8", "what the row says is still there"
    assert read.scenario.model.kv_dtype == "fp8"
    assert read.scenario.engine.async_scheduling
    for each in (ignored, read):
        assert (each.scenario.cost.all_reduce, each.scenario.cost.fp8_decode) == ("custom", "untuned")
        assert each.scenario.engine.cuda_graph.mode == "piecewise"


@pytest.mark.parametrize(
    ("version", "kernel"),
    [("0.9.2", "custom"), ("0.11.2", "symm_mem"), ("0.15.1", "symm_mem"), ("0.25.0", "symm_mem"), ("0.31.0", "")],
)
def test_versions_sum_with_their_kernels(version: str, kernel: str) -> None:
    assert stack_of(version, "any", "h100").cost.get("all_reduce", "") == kernel


def test_host_times_are_of_a_family_and_grow_with_ranks() -> None:
    host = {"default": {"per_step": 1e-3}, "hopper": {"per_step": 2e-3, "per_rank": 5e-4}}
    stack = Stack(name="x", versions=("",), host=host)
    assert stack.host_of("l4-24gb", 2) == {"per_step": 1e-3}
    assert stack.host_of("h100-sxm-80gb", 1) == {"per_step": 2e-3}
    assert stack.host_of("h200-sxm-141gb", 4) == {"per_step": 2.5e-3}
    assert family("b200-sxm-180gb") == "blackwell"


def test_the_roofline_reads_weights_and_kv_at_the_nominal_bandwidth() -> None:
    scenario = row_of(arrival_process="closed-loop", model="meta-llama/Llama-3.1-8B", weight_dtype="fp16").scenario
    model = scenario.model
    context = (102 + 128) / 2 + (51 + 64) / 2 / 2
    expected = (model.weight_bytes + 8 * context * model.kv_bytes_per_token) / scenario.cluster.gpu.hbm_bandwidth
    assert roofline_tpot(scenario) == pytest.approx(expected)


def test_errors_and_their_statistics() -> None:
    runs = [run_of(id=str(number)) for number in range(3)]
    values = [{"tpot_mean_ms": 7.5 * factor, "ttft_mean_ms": 25 * factor} for factor in (0.8, 1.1, 12.0)]
    predictions = [Prediction(run, each, roofline=3.75) for run, each in zip(runs, values, strict=True)]
    errors = errors_of(predictions)
    assert [round(each.error, 9) for each in errors if each.metric == "tpot_mean_ms"] == [-0.2, 0.1, 11.0]
    (group,) = [one for one in summary_of(errors) if (one.by, one.metric) == ("gpu", "tpot_mean_ms")]
    assert group.value == "H100-SXM-80GB"
    assert group.rows == 3
    assert group.median_abs == pytest.approx(0.2)
    assert group.mean_abs == pytest.approx(statistics.fmean([0.2, 0.1, 11.0]))
    assert group.bias == pytest.approx(statistics.fmean([-0.2, 0.1, 11.0]))
    assert group.roofline_bias == pytest.approx(-0.5)
    assert [each.prediction.run.name for each in false_saturations(errors)] == ["2"]


def test_load_is_users_or_rate_times_latency() -> None:
    assert running_at_once(run_of()) == pytest.approx(8 * 0.2)
    assert running_at_once(run_of(arrival_process="closed-loop")) == 8


def test_the_report_holds_every_row_once(tmp_path: Path) -> None:
    impossible = {**OPEN_LOOP, "id": "too-large", "model": "meta-llama/Llama-3.1-405B"}
    rows = read_measured(write_rows(tmp_path / "t.csv", OPEN_LOOP, CLOSED_LOOP, impossible))
    shares: list[float] = []
    report = validate_table(rows, SerialExecutor(), shares.append)
    data = report.as_dict()
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])
    assert {row["id"] for row in data["rows"]} == {"made-up-s0", "made-up-c8"}  # type: ignore[attr-defined]
    assert [row["id"] for row in data["skipped"]] == ["too-large"]  # type: ignore[attr-defined]
    assert "weights" in report.skipped[0].reason
    first = data["rows"][0]  # type: ignore[index]
    assert list(first) == ["id", "tier", "gpu", "model", "metric", "measured", "predicted", "error"]
    assert first["error"] == pytest.approx(first["predicted"] / first["measured"] - 1)


def test_a_prediction_is_near_for_a_well_known_card(tmp_path: Path) -> None:
    """Physics: 16 GB of weights at 3.35 TB/s take 4.8 ms, and nobody has seen twice that at 2 requests at once."""
    del tmp_path
    values = predict(run_of()).values
    assert 5 < values["tpot_mean_ms"] < 10
    assert values["e2e_mean_ms"] == pytest.approx(values["ttft_mean_ms"] + 23 * values["tpot_mean_ms"], rel=0.01)


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    table = write_rows(tmp_path / "t.csv", OPEN_LOOP, CLOSED_LOOP, {**OPEN_LOOP, "id": "other", "engine": "sglang"})
    out, plot = tmp_path / "errors.json", tmp_path / "errors.png"
    arguments = ["validate", "table", str(table), "--json", str(out), "--plot", str(plot), "--workers", "1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "Errors by gpu" in done.stdout
    assert "other: engine sglang" in done.stdout
    data = json.loads(out.read_text())
    assert set(data) == {"rows", "skipped", "summary"}
    assert {path.name for path in tmp_path.iterdir()} == {
        *("t.csv", "errors.json", "errors.png", "errors.svg", "errors-by-load.png", "errors-by-load.svg")
    }


def test_a_plot_into_nowhere_is_refused_before_the_work(tmp_path: Path) -> None:
    table = write_rows(tmp_path / "t.csv", OPEN_LOOP)
    done = CliRunner().invoke(app, ["validate", "table", str(table), "--json", str(tmp_path / "no" / "x.json")])
    assert done.exit_code == 2
    assert "there is no folder" in done.stderr


def test_an_empty_report_has_no_statistics() -> None:
    report = TableReport.of([Prediction(run_of(), {}, reason="not modelled yet")])
    assert report.as_dict()["summary"] == []


@pytest.mark.parametrize(("tp", "largest"), [("2", 32), ("8", 8), ("1", None)])
def test_flags_of_a_launch_script_go_to_its_gpus_alone(tp: str, largest: float | None) -> None:
    """InferenceX's scripts of autumn 2025 for B200 fuse kernels, those for Hopper do not."""
    cells = {"source": "InferenceX dump", "engine_version": "", "tp": tp}
    cells |= {"model": "meta-llama/Llama-3.3-70B-Instruct", "weight_dtype": "fp8"}
    blackwell, hopper = (row_of(gpu=gpu, **cells).scenario.engine for gpu in ("B200-SXM-180GB", "H200-SXM-141GB"))
    assert blackwell.pass_config.fuse_allreduce_rms
    assert blackwell.pass_config.fi_allreduce_fusion_max_size_mb == largest
    assert blackwell.linear_backend == "flashinfer_cutlass"
    assert not hopper.pass_config.fuse_allreduce_rms
    assert hopper.linear_backend == "auto"


def test_a_machine_with_links_of_its_own_is_taken_with_them() -> None:
    """LLMServingSim's GPUs exchanged their data through the host; the same GPU elsewhere has its profile's links."""
    here, elsewhere = (
        scenario_of_row(run_of(gpu="RTX-PRO-6000-96GB", source=source, tp="2")).scenario.cluster.gpu
        for source in ("casys-kaist/LLMServingSim", "somebody else")
    )
    assert here.interconnect.all_reduce[2].bus_bandwidth == 16e9
    assert here.interconnect.all_reduce.keys() == {2}, "four were measured over other links"
    assert elsewhere.interconnect == find_gpu("rtx-pro-6000-96gb").interconnect
    assert modelled_all_reduce(here) > 2 * modelled_all_reduce(elsewhere)


def modelled_all_reduce(gpu: GpuSpec) -> float:
    """Seconds of an all-reduce of 1 MiB between two, as a simulation at level `kernels` takes it."""
    reduce = sharding(gpu, 2, tables_of(gpu)).all_reduce
    assert reduce is not None
    return float(reduce(np.array([2.0**20])).item())
