"""Recorded benchmarks: read, replayed, and a profile fitted to them. The recordings are of a real vLLM on a CPU."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from simserve.cli import app
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import read_gpu
from simserve.spec.load import load_scenario, parse_scenario
from simserve.spec.scenario import Scenario
from simserve.validation.fit import CONSTANTS, FittedServer, fit_server, write_profile
from simserve.validation.replay_benchmark import (
    Recording,
    predicted_latencies,
    read_recording,
    replay,
    replay_errors,
    replayed,
    taken_in,
)

REAL = Path(__file__).parent / "real"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenario of the server in tests/real, on one core of a CPU: 20 GB/s and 200 GFLOP/s."""
    path = tmp_path_factory.mktemp("server") / "server.yaml"
    scenario = {
        "model": {"config": str(REAL / "model_config.json"), "name": "tiny-llama-40m"},
        "workload": {"arrivals": {"process": "poisson", "rate": 4}, "input": 256, "output": 48, "num_requests": 100},
        "cluster": {
            "gpu": {"base": "ideal-3tb", "name": "core", "hbm_bandwidth": "20 GB/s", "peak_flops": {"bf16": 2e11}}
        },
        "engine": {
            "max_model_len": 4096,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 2048,
            "block_size": 32,
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "async_scheduling": False,
            "num_gpu_blocks": 4096,
        },
    }
    path.write_text(yaml.safe_dump(scenario))
    return path


@pytest.fixture(scope="module")
def scenario(server: Path) -> Scenario:
    return load_scenario(server)


@pytest.fixture(scope="module")
def q4a() -> Recording:
    return read_recording(REAL / "bench_q4a.json")


@pytest.fixture(scope="module")
def q4b() -> Recording:
    return read_recording(REAL / "bench_q4b.json")


@pytest.fixture(scope="module")
def fitted(scenario: Scenario, q4a: Recording) -> FittedServer:
    return fit_server(scenario, [q4a])


def test_the_same_benchmark_from_two_files_is_one(q4a: Recording) -> None:
    rows = read_recording(REAL / "requests_q4a.csv")
    assert rows.clock == q4a.clock == "client"
    assert rows.arrival == pytest.approx(q4a.arrival, abs=1e-5)
    assert (rows.output_len == q4a.output_len).all()
    for name, values in rows.latencies.items():
        assert values == pytest.approx(q4a.latencies[name], abs=1e-4, nan_ok=True)


def test_statistics_are_those_that_the_benchmark_printed(q4a: Recording) -> None:
    printed = json.loads((REAL / "bench_q4a.json").read_text())
    errors = {each.metric: each for each in replay_errors(q4a, q4a.latencies)}
    for ours, theirs in (("mean_ttft", "mean_ttft_ms"), ("p99_tpot", "p99_tpot_ms"), ("p50_e2e", "p50_e2el_ms")):
        assert errors[ours].measured * 1e3 == pytest.approx(printed[theirs])
    assert all(each.error == 0 for each in errors.values()), "a recording predicts itself"


def test_a_replay_sends_what_was_recorded(scenario: Scenario, q4a: Recording) -> None:
    with replayed(scenario, q4a) as ready:
        requests = simulate(ready).requests
    assert (requests["input_len"] == q4a.input_len).all()
    assert (requests["output_len"] == q4a.output_len).all()
    assert requests["arrival"] == pytest.approx(q4a.arrival, abs=1e-6)


def test_failed_requests_are_left_out(tmp_path: Path) -> None:
    result = json.loads((REAL / "bench_q4a.json").read_text())
    result["errors"][3] = "Traceback: timed out"
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result))
    assert read_recording(path).arrival.size == 99


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("b.json", "{}", "has no 'ttfts"),
        ("b.json", "[1", "cannot be read as a recorded benchmark"),
        ("b.csv", "a,b\n1,2\n", "has no 'arrival_s'"),
        ("b.csv", "arrival_s,prompt_len,output_len,ttft_s,e2e_s\n", "no completed request"),
        ("b.jsonl", '{"arrival_time": 1}\n', "has no 'queued_ts'"),
        ("b.txt", "", r"expected a .json, .jsonl or .csv"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        read_recording(path)


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no.json: no such file"):
        read_recording(tmp_path / "no.json")


def test_the_engines_clock_starts_when_a_step_has_ended(tmp_path: Path) -> None:
    """Steps of 10 ms from 0 on: a request that comes at 13 ms is taken in at 20, and has its token at 30."""
    path = tmp_path / "r.jsonl"
    rows = [(100.0, 5, 50), (100.013, 5, 2)]
    path.write_text(
        "".join(
            json.dumps(
                {
                    **{"arrival_time": at, "queued_ts": at, "first_token_ts": at + 0.01, "last_token_ts": at + 0.02},
                    **{"input_toks": inputs, "output_toks": outputs},
                }
            )
            + "\n"
            for at, inputs, outputs in rows
        )
    )
    recording = read_recording(path)
    assert recording.clock == "engine"
    text = "{model: tiny-llama, workload: {arrivals: {process: all_at_once}, input: 1, output: 1, num_requests: 1}, "
    text += "cluster: {gpu: h100-sxm-80gb}, engine: {async_scheduling: false}, cost: {constant_step: 10 ms}}"
    with replayed(parse_scenario(text), recording) as ready:
        assert ready.cost.host.front_end_per_request == 0
        result = simulate(ready)
    assert taken_in(result) == pytest.approx([0, 0.02])
    assert predicted_latencies(result, "engine")["ttft"] == pytest.approx([0.01, 0.01])
    assert predicted_latencies(result, "client")["ttft"] == pytest.approx([0.01, 0.017])


def test_a_fit_predicts_the_repeat_of_a_benchmark(fitted: FittedServer, q4b: Recording, scenario: Scenario) -> None:
    """Fit on q4a, predict q4b. The two repeats themselves differ by 25 % in p95 TTFT and by 7 % in mean TTFT."""
    before = {each.metric: each.error for each in replay_errors(q4b, replay(scenario, q4b))}
    errors = {each.metric: each.error for each in fitted_errors(fitted, scenario, q4b)}
    bound = 0.12
    assert before["mean_tpot"] < -3 * bound, "the test is worth nothing if the base profile is right already"
    for metric in ("mean_ttft", "p50_ttft", "mean_tpot", "p50_tpot", "p95_tpot", "mean_e2e", "p95_e2e"):
        assert abs(errors[metric]) < bound, metric
    assert abs(errors["p95_ttft"]) < 0.35
    assert abs(errors["output_throughput"]) < 0.01


def fitted_errors(fitted: FittedServer, scenario: Scenario, recording: Recording):  # type: ignore[no-untyped-def]
    host = scenario.cost.host.model_copy(update=fitted.gpu.host.model_dump())
    document = scenario.model_dump(mode="json", by_alias=True)
    document["cluster"]["gpu"] = json.loads(fitted.gpu.model_dump_json())
    document["cost"]["host"] = host.model_dump()
    return replay_errors(recording, replay(parse_scenario(scenario_text(document)), recording))


def scenario_text(document: dict[str, object]) -> str:
    return Scenario.model_validate(with_whole_keys(document)).to_yaml()


def with_whole_keys(value: object) -> object:
    if isinstance(value, dict):
        return {int(key) if str(key).isdigit() else key: with_whole_keys(item) for key, item in value.items()}
    return [with_whole_keys(item) for item in value] if isinstance(value, list) else value


def test_the_fit_is_near_on_what_it_saw(fitted: FittedServer) -> None:
    (errors,) = fitted.fitted.values()
    assert np.mean([abs(each.error) for each in errors]) < 0.07
    assert fitted.left_out == {}, "with one benchmark there is none to leave out"
    assert set(fitted.factors) == set(CONSTANTS)


def test_what_the_benchmark_does_not_tell_stays(fitted: FittedServer) -> None:
    """The host of this server is a small part of a step: its constants stay within the reach of the prior."""
    assert all(0.1 < fitted.factors[name] < 10 for name in CONSTANTS)


def test_a_fitted_profile_can_be_written_and_named(fitted: FittedServer, tmp_path: Path) -> None:
    path = write_profile(fitted.gpu, tmp_path / "my-server")
    assert read_gpu(path) == fitted.gpu
    assert "bench_q4a.json" in fitted.gpu.sources["hbm_bandwidth"]
    with pytest.raises(FileExistsError):
        write_profile(fitted.gpu, tmp_path / "my-server")
    assert [each.name for each in path.parent.iterdir()] == ["profile.yaml"]


def test_the_commands_print_what_the_functions_find(server: Path, tmp_path: Path) -> None:
    bench = str(REAL / "bench_q4a.json")
    done = CliRunner().invoke(app, ["validate", "run", str(server), "--against", bench, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["requests"] == 100
    errors = {each.metric: each.error for each in replay_errors(read_recording(Path(bench)), replay_of(server, bench))}
    assert {name: each["error"] for name, each in report["metrics"].items()} == pytest.approx(errors)
    both = ["--against", bench, "--against", str(REAL / "bench_q4b.json")]
    done = CliRunner().invoke(app, ["fit-server", str(server), *both, "-o", str(tmp_path / "mine")])
    assert done.exit_code == 0, done.output
    assert "Predicted from the other benchmarks: bench_q4b.json" in done.stdout
    assert read_gpu(tmp_path / "mine").name == "core-fitted"
    done = CliRunner().invoke(app, ["fit-server", str(server), *both, "-o", str(tmp_path / "mine")])
    assert done.exit_code == 2


def replay_of(server: Path, bench: str):  # type: ignore[no-untyped-def]
    return replay(load_scenario(server), read_recording(Path(bench)))
