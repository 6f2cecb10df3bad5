"""How far simulations were from measured servers: written from a table, found for a run, said in its trust line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_rows import CLOSED_LOOP, OPEN_LOOP, write_rows
from typer.testing import CliRunner

from simserve.cli import app
from simserve.report import evidence as module
from simserve.report.evidence import Deployment, Evidence, differences, measured_error
from simserve.report.run_folder import read_run
from simserve.report.summary import summarize
from simserve.report.trust import optimistic, trust_line
from simserve.report.write_run import write_run
from simserve.simulation import simulate
from simserve.spec import resources
from simserve.spec.load import load_scenario
from simserve.spec.scenario import Scenario
from simserve.validation.error_file import write_errors
from simserve.validation.errors import Error
from simserve.validation.measured import MeasuredRun
from simserve.validation.prediction import Prediction

ROOT = Path(__file__).parent.parent
LLAMA = Deployment("h100-sxm-80gb", "kernels", "llama-3.1-8b", "bf16", 8.03, "full + dense", "TP1")
TTFT, TPOT = "mean TTFT", "mean TPOT"
KNOWN = (
    Evidence(LLAMA, 40, {TTFT: {"median_abs": 0.03, "runs": 12}, TPOT: {"median_abs": 0.041, "runs": 9}}),
    Evidence(LLAMA._replace(model="qwen2.5-7b", parameters=7.6), 100, {TPOT: {"median_abs": 0.05, "runs": 4}}),
    Evidence(
        LLAMA._replace(model="x-70b", parameters=70.6, parallel="TP4"), 64, {TPOT: {"median_abs": 0.02, "runs": 30}}
    ),
    Evidence(
        Deployment("l4-24gb", "datasheet", "qwen2.5-0.5b", "bf16", 0.49, "full + dense", "TP1"),
        64,
        {"output tokens/s": {"median_abs": 0.2, "runs": 1}},
    ),
)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "evidence", lambda: KNOWN)


def scenario(*overrides: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / "quickstart.yaml", ["workload.trace.limit=5", *overrides])


def error(deployment: Deployment, metric: str, relative: float, version: str = "0.15.1", most: int = 8) -> Error:
    run = MeasuredRun({"id": "x", "engine_version": version}, {})
    return Error(Prediction(run, {}, deployment=deployment, concurrency=most), metric, 1.0, 1.0 + relative)


def test_medians_are_by_deployment(tmp_path: Path) -> None:
    other = LLAMA._replace(parallel="TP2")
    errors = [error(LLAMA, "tpot_mean_ms", size, "0.9.2", 16) for size in (-0.05, 0.01, 0.02, -0.03, 0.04)]
    errors += [error(other, "tpot_mean_ms", 0.5, "0.11.0"), error(LLAMA, "e2e_p99_ms", 9)]
    errors += [error(LLAMA._replace(gpu="mi999"), "tpot_mean_ms", 9), error(LLAMA, "ttft_mean_ms", -0.1, "0.11.0")]
    assert write_errors(errors, tmp_path / "errors.csv") == 3
    assert (tmp_path / "errors.csv").read_text().splitlines() == [
        "gpu,level,model,weight_dtype,parameters,layers,parallel,concurrency,metric,median_abs,runs,engine_versions",
        "h100-sxm-80gb,kernels,llama-3.1-8b,bf16,8.03,full + dense,TP1,16,mean TTFT,0.1000,1,0.11.0",
        "h100-sxm-80gb,kernels,llama-3.1-8b,bf16,8.03,full + dense,TP1,16,mean TPOT,0.0300,5,0.9.2",
        "h100-sxm-80gb,kernels,llama-3.1-8b,bf16,8.03,full + dense,TP2,8,mean TPOT,0.5000,1,0.11.0",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["errors.csv"]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], "error measured: mean TTFT 3 % (12 runs), mean TPOT 4.1 % (9 runs), median of 12 runs of this model"),
        (["model={config: llama-3.1-8b, weight_dtype: fp16}"], "mean TTFT 3 %"),
        (
            ["model=qwen3-8b"],
            "error measured: mean TTFT 3 % (12 runs), mean TPOT 4.1 % (13 runs), median of 13 runs of",
        ),
        (
            ["model={config: llama-3.1-8b, weight_dtype: fp8}"],
            "error not measured for such a run: the nearest on this GPU is llama-3.1-8b in bf16 on TP1 (mean TTFT 3 %"
            " (12 runs), mean TPOT 4.1 % (9 runs), median of 12 runs), here weights in fp8, not bf16",
        ),
        (["model=llama-3.1-70b", "cluster.tensor_parallel=8"], "nearest on this GPU is x-70b in bf16 on TP4"),
        (["model=gpt-oss-20b"], "here weights in mxfp4, not bf16; layers of full + window + experts, not full + dense"),
        (["cluster.gpu=l4-24gb", "model=qwen3-0.6b"], "error measured: output tokens/s 20 %, one run of qwen2.5-0.5b"),
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
    assert (summary["measured_error"] is None) == ("runs" not in summary["trust"] and "one run" not in summary["trust"])


@given(st.sampled_from(["weight_dtype", "layers", "parallel", "parameters", "concurrency"]), st.sampled_from(KNOWN[:3]))
def test_whatever_differs_from_all_evidence_is_named(part: str, known: Evidence) -> None:
    """An error is never quoted for a run that is in one respect unlike its evidence."""
    own, most = known.deployment._replace(model="new"), known.concurrency
    assert not list(differences(own, most, known))
    changes = {
        "weight_dtype": "int4",
        "layers": "latent + experts",
        "parallel": "TP16",
        "parameters": own.parameters * 9,
    }
    if part == "concurrency":
        most *= 2
    else:
        own = own._replace(**{part: changes[part]})
    (difference,) = differences(own, most, known)
    assert "not" in difference


def test_much_beyond_the_measured_range_comes_first() -> None:
    summary = {"cost_level": "kernels", "total_steps": 10, "measured_error": None}
    assert trust_line(summary | {"extrapolated_steps": 3}).startswith("30.0 % of steps beyond the measured range; cost")
    assert trust_line(summary | {"extrapolated_steps": 2}).startswith("cost level kernels")


@pytest.mark.parametrize(
    ("level", "latent", "experts", "parameters", "said"),
    [
        ("datasheet", True, True, 671e9, "MLA"),
        ("datasheet", False, True, 120e9, "large mixtures of experts"),
        ("datasheet", False, True, 30e9, None),
        ("datasheet", False, False, 400e9, None),
        ("kernels", True, True, 671e9, None),
    ],
)
def test_what_was_too_fast_before_is_said(
    level: str, latent: bool, experts: bool, parameters: float, said: str | None
) -> None:
    """faults.md: R1 on H200 44 % too low, 5.8 ms for 16.1 on 8 H100, gpt-oss-120b 168 tokens/s for 89 on A100."""
    found = optimistic(level, latent=latent, experts=experts, parameters=parameters)
    assert found is None if said is None else found is not None and said in found
    line = trust_line({"cost_level": level, "optimistic": found})
    assert ("2 to 3 times too short at small batches" in line) == (said is not None)


def test_a_calibrated_profile_states_its_own_error() -> None:
    calibrated = load_scenario(ROOT / "scenarios" / "quickstart-cpu.yaml")
    known = measured_error(calibrated, "calibrated", 1)
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
    whose = "llama-3.1-8b in bf16 on TP1"
    assert stored["measured_error"] == {"of": "model", "errors": KNOWN[0].errors, "whose": whose}
    monkeypatch.setattr(module, "evidence", tuple)
    assert summarize(read_run(tmp_path / "run").result)["trust"] == stored["trust"]


def test_the_command_writes_what_runs_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_rows(tmp_path / "t.csv", OPEN_LOOP, CLOSED_LOOP)
    out = tmp_path / "measured_error.csv"
    done = CliRunner().invoke(app, ["validate", "table", str(table), "--errors", str(out), "--workers", "1"])
    assert done.exit_code == 0, done.output
    monkeypatch.setattr(resources, "find", lambda kind, name: out)
    found = {each.deployment: each for each in module.evidence.__wrapped__()}
    assert {(key.gpu, key.level) for key in found} == {("h100-sxm-80gb", "kernels"), ("b200-sxm-180gb", "kernels")}
    assert found[LLAMA].errors["mean TPOT"]["runs"] == 1


def test_the_file_that_comes_with_simserve_is_of_its_profiles() -> None:
    found = module.evidence.__wrapped__()
    assert {each.deployment.gpu for each in found} <= set(resources.names("hardware_profiles"))
    assert {each.deployment.level for each in found} <= {"kernels", "datasheet"}
    for each in found:
        assert all(0 <= one["median_abs"] < 1.5 and one["runs"] >= 1 for one in each.errors.values())
        assert each.concurrency >= 1
    runs = sum(each.runs for each in found if each.deployment.gpu == "h100-sxm-80gb")
    assert runs > 100
