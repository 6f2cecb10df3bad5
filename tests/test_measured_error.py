"""How far simulations were from measured servers: written from a table, found for a run, said in its trust line."""

import json
from pathlib import Path

import pytest
from measured_rows import CLOSED_LOOP, OPEN_LOOP, write_rows
from typer.testing import CliRunner

from simserve.cli import app
from simserve.report.run_folder import read_run
from simserve.report.summary import summarize
from simserve.report.trust import trust_line
from simserve.report.write_run import write_run
from simserve.simulation import simulate
from simserve.spec import measured_error as module
from simserve.spec import resources
from simserve.spec.load import load_scenario
from simserve.spec.measured_error import Simulated, measured_error
from simserve.spec.scenario import Scenario
from simserve.validation.error_file import write_errors
from simserve.validation.errors import Error
from simserve.validation.measured import MeasuredRun
from simserve.validation.prediction import Prediction

ROOT = Path(__file__).parent.parent
LLAMA = Simulated("h100-sxm-80gb", "kernels", "llama-3.1-8b", "bf16")
KNOWN = {
    LLAMA: {"mean TTFT": {"median_abs": 0.03, "runs": 12}, "mean TPOT": {"median_abs": 0.041, "runs": 9}},
    LLAMA.of_any_model: {"mean TPOT": {"median_abs": 0.05, "runs": 40}},
    Simulated("l4-24gb", "datasheet"): {"output tokens/s": {"median_abs": 0.2, "runs": 1}},
}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_errors", lambda: KNOWN)


def scenario(*overrides: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / "quickstart.yaml", ["workload.trace.limit=5", *overrides])


def error(simulated: Simulated, metric: str, relative: float, version: str = "0.15.1") -> Error:
    run = MeasuredRun({"id": "x", "engine_version": version}, {})
    return Error(Prediction(run, {}, simulated=simulated), metric, 1.0, 1.0 + relative)


def test_medians_are_by_gpu_and_level_and_by_model_with_enough_runs(tmp_path: Path) -> None:
    other = LLAMA._replace(model="qwen3-14b")
    errors = [error(LLAMA, "tpot_mean_ms", size, "0.9.2") for size in (-0.05, 0.01, 0.02, -0.03, 0.04)]
    errors += [error(other, "tpot_mean_ms", 0.5, "0.11.0"), error(LLAMA, "e2e_p99_ms", 9)]
    errors += [error(LLAMA._replace(gpu="mi999"), "tpot_mean_ms", 9), error(LLAMA, "ttft_mean_ms", -0.1, "")]
    assert write_errors(errors, tmp_path / "errors.csv") == 3
    assert (tmp_path / "errors.csv").read_text().splitlines() == [
        "gpu,level,model,weight_dtype,metric,median_abs,runs,engine_versions",
        "h100-sxm-80gb,kernels,,,mean TTFT,0.1000,1,",
        "h100-sxm-80gb,kernels,,,mean TPOT,0.0350,6,0.9.2 to 0.11.0",
        "h100-sxm-80gb,kernels,llama-3.1-8b,bf16,mean TPOT,0.0300,5,0.9.2",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["errors.csv"]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], "error measured: mean TTFT 3 % (12 runs), mean TPOT 4.1 % (9 runs), median of 12 runs of this model on"),
        (["model={config: llama-3.1-8b, weight_dtype: fp16}"], "mean TTFT 3 %"),
        (["model=qwen2.5-7b"], "error measured: mean TPOT 5 %, median of 40 runs of this GPU"),
        (["cluster.gpu=l4-24gb", "model=qwen3-0.6b"], "error measured: output tokens/s 20 %, one run of this GPU"),
        (["cluster.gpu=mi300x-192gb"], "error not measured for this level and GPU"),
        (["cost.level=datasheet"], "error not measured for this level and GPU"),
        (["cluster.gpu={base: h100-sxm-80gb, hbm_bandwidth: 3 TB/s}"], "error not measured for this level and GPU"),
        (["cluster.gpu={base: h100-sxm-80gb, price_per_hour: 3}"], "mean TTFT 3 %"),
        (["cost.constant_step=10 ms"], "cost level constant, every step takes the stated time"),
    ],
)
def test_the_trust_line_says_what_is_known_of_runs_like_this(overrides: list[str], words: str) -> None:
    summary = summarize(simulate(scenario(*overrides)))
    assert words in summary["trust"]
    assert (summary["measured_error"] is None) == ("error measured" not in summary["trust"])


def test_a_calibrated_profile_states_its_own_error() -> None:
    calibrated = load_scenario(ROOT / "scenarios" / "quickstart-cpu.yaml")
    known = measured_error(calibrated, "calibrated")
    spec = calibrated.cluster.gpu.calibrated
    assert spec is not None
    mape = spec.quality.held_out.mape
    assert known == {"of": "steps", "errors": {"step": {"mean_abs": mape}}}
    line = trust_line({"cost_level": "calibrated", "measured_error": known})
    assert line.endswith(f"steps held out of the calibration are {100 * mape:.2g} % off on the mean")


@pytest.mark.usefixtures("known")
def test_a_run_keeps_the_error_that_was_known_when_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(simulate(scenario()), tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stored["measured_error"] == {"of": "model", "errors": KNOWN[LLAMA]}
    monkeypatch.setattr(module, "_errors", dict)
    assert summarize(read_run(tmp_path / "run").result)["trust"] == stored["trust"]


def test_the_command_writes_what_runs_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_rows(tmp_path / "t.csv", OPEN_LOOP, CLOSED_LOOP)
    out = tmp_path / "measured_error.csv"
    done = CliRunner().invoke(app, ["validate", "table", str(table), "--errors", str(out), "--workers", "1"])
    assert done.exit_code == 0, done.output
    monkeypatch.setattr(resources, "find", lambda kind, name: out)
    found = module._errors.__wrapped__()
    assert set(found) == {LLAMA.of_any_model, Simulated("b200-sxm-180gb", "kernels")}
    assert found[LLAMA.of_any_model]["mean TPOT"]["runs"] == 1


def test_the_file_that_comes_with_simserve_is_of_its_profiles() -> None:
    found = module._errors.__wrapped__()
    assert {key.gpu for key in found} <= set(resources.names("hardware_profiles"))
    assert {key.level for key in found} <= {"kernels", "datasheet"}
    for errors in found.values():
        assert all(0 < each["median_abs"] < 1 and each["runs"] >= 1 for each in errors.values())
    assert found[LLAMA.of_any_model]["mean TPOT"]["runs"] > 100
