"""The command line as a person meets it: what it prints where, how it ends, what it says of mistakes."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import simserve
from simserve.cli import VERBS, app

SMALL = """
name: small
model: llama-3.1-8b
workload:
  arrivals: {process: poisson, rate: 5}
  input: 100
  output: 10
  num_requests: 30
cluster: {gpu: h100-sxm-80gb}
slo: {percentile: 95, ttft: 500 ms, tpot: 50 ms}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A scenario that takes no time, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    return "small.yaml"


def call(*arguments: str) -> Result:
    """The command, in this process; a bug's exception is raised, not swallowed."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


def refused(*arguments: str) -> str:
    """stderr of a command that must end with exit code 2, print no result and write nothing."""
    before = sorted(Path.cwd().rglob("*"))
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert sorted(Path.cwd().rglob("*")) == before
    return re.sub(r"\s+", " ", result.stderr)


def names(folder: str = ".") -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def test_run_prints_the_table_alone_on_stdout(small: str) -> None:
    result = call("run", small, "-o", "out")
    assert result.exit_code == 0
    assert result.stdout.startswith("============ Serving Benchmark Result ============\n")
    assert result.stderr == "wrote out\n"
    assert {"summary.json", "requests.parquet", "steps.parquet", "scenario.yaml"} <= names("out")


def test_run_without_a_folder_writes_nothing(small: str) -> None:
    assert call("run", small).exit_code == 0
    assert names() == {small}


def test_run_prints_its_summary_as_json(small: str) -> None:
    summary = json.loads(call("run", small, "--json", "-o", "out").stdout)
    assert summary["completed"] == 30
    assert summary == json.loads(Path("out/summary.json").read_text())


def test_overrides_reach_the_run(small: str) -> None:
    call("run", small, "workload.num_requests=7", "seed=3", "-o", "out")
    assert json.loads(Path("out/summary.json").read_text())["completed"] == 7
    assert "seed: 3" in Path("out/scenario.yaml").read_text()


def test_gallery_names_stand_for_their_files(small: str) -> None:
    assert "Mean TTFT" in call("run", "quickstart", "workload.trace.limit=20").stdout


def test_run_folder_is_kept_without_force_and_replaced_with_it(small: str) -> None:
    call("run", small, "-o", "out")
    first = Path("out/summary.json").read_bytes()
    assert "--force replaces it" in refused("run", small, "seed=1", "-o", "out")
    assert Path("out/summary.json").read_bytes() == first
    assert call("run", small, "seed=1", "-o", "out", "--force").exit_code == 0
    assert Path("out/summary.json").read_bytes() != first


def test_force_never_replaces_a_folder_that_is_no_run(small: str) -> None:
    Path("thesis").mkdir()
    Path("thesis/chapter1.tex").write_text("years of work")
    assert "not the folder of a run" in refused("run", small, "-o", "thesis", "--force")


def test_missed_slo_is_exit_code_3_when_asked(small: str) -> None:
    assert call("run", small, "--fail-on-slo").exit_code == 0
    assert call("run", small, "slo.ttft=1 us").exit_code == 0
    missed = call("run", small, "slo.ttft=1 us", "--fail-on-slo", "-o", "out")
    assert missed.exit_code == 3
    assert "SLO missed" in missed.stderr
    assert Path("out/summary.json").exists()
    assert "needs an SLO" in refused("run", small, "slo=null", "--fail-on-slo")


def test_report_can_be_made_again_from_the_records(small: str) -> None:
    call("run", small, "-o", "out", "--report", "--csv")
    page = Path("out/report.html")
    first = page.read_bytes()
    page.unlink()
    assert call("report", "out").exit_code == 0
    assert page.read_bytes() == first
    assert {"requests.csv", "steps.csv"} <= names("out")
    assert "not the folder of a run" in refused("report", ".")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "quikstart"], "did you mean 'quickstart'?"),
        (["run", "nothere.yaml"], "nothere.yaml: cannot be read"),
        (["run", "small.yaml", "cluster.replica=2"], "unknown key 'replica'; did you mean 'replicas'?"),
        (["run", "small.yaml", "cluster.replicas"], "key.path=value"),
        (["run", "small.yaml", "model=llama-3.1-70b"], "weights"),
        (["run", "small.yaml", "--report"], "need a folder"),
        (["run", "small.yaml", "--repotr"], "--report"),
        (["rnu"], "run"),
        (["sweep", "small.yaml", "-o", "out"], "nothing to vary"),
        (["sweep", "small.yaml", "cluster.replica=1,2", "-o", "out"], "did you mean 'replicas'?"),
        (["sweep", "small.yaml", "--rates", "1,2"], "--out"),
        (["sweep", "closed-loop", "--rates", "1,2", "-o", "out"], "workload.arrivals.users"),
        (["capacity", "small.yaml", "slo=null"], "add one"),
        (["capacity", "small.yaml", "--rate", "-3"], "above 0"),
        (["capacity", "small.yaml", "--rate", "1e9", "--seeds", "1"], "more than 1000 replicas"),
        (["capacity", "small.yaml", "workload.arrivals={process: all_at_once}"], "all_at_once arrivals are not"),
        (["step", "small.yaml", "--decodes", "0"], "an empty step"),
        (["step", "small.yaml", "--history", "5"], "give --prefill"),
        (["memory", "small.yaml", "model=llama-3.1-70b"], "weights do not fit"),
        (["profiles", "h100-sxn"], "did you mean 'h100-sxm-80gb'?"),
        (["profiles", "h100"], "h100 is h100-nvl-94gb, h100-pcie-80gb or h100-sxm-80gb; name one"),
        (["gallery", "quickstrat"], "did you mean 'quickstart'?"),
        (["gallery", "--copy"], "needs the NAME"),
        (["report", "nothere"], "not the folder of a run"),
        (["fidelity", "nothere"], "nothere"),
        (["trace", "convert", "nothere.csv", "out.csv", "--format", "azure"], "no such trace file"),
    ],
)
def test_mistakes_end_with_exit_code_2_and_say_how_to_mend_them(small: str, arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def command_of(verb: Callable[..., None]) -> str:
    return verb.__name__.replace("_", "-")


def test_every_verb_explains_itself() -> None:
    for verbs in VERBS.values():
        for verb in verbs:
            result = call(command_of(verb), "--help")
            assert result.exit_code == 0
            assert verb.__doc__ is not None
            assert verb.__doc__.split(".")[0].split(";")[0][:30] in re.sub(r"\s+", " ", result.stdout)
    overview = call("--help").stdout
    assert all(command_of(verb) in overview for verbs in VERBS.values() for verb in verbs)


def test_examples_in_the_help_are_commands_that_parse(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example names verbs, options, scenarios and keys that exist: it stops only at what it would compute."""
    from simserve.cli.arguments import scenario_path
    from simserve.spec.load import load_scenario

    for verbs in VERBS.values():
        for verb in verbs:
            for example in re.findall(r"Example: simserve (.*)", verb.__doc__ or ""):
                name, scenario, *rest = example.split()
                assert name == command_of(verb)
                assert all(word in call(name, "--help").stdout for word in rest if word.startswith("--"))
                if name in {"run", "sweep", "capacity", "step", "memory"}:
                    load_scenario(scenario_path(scenario), [re.sub(r",.*", "", word) for word in rest if "=" in word])


def test_version(small: str) -> None:
    assert call("--version").stdout == f"simserve {simserve.__version__}\n"


def test_models_and_profiles_are_listed_as_tables_and_as_json(small: str) -> None:
    assert re.search(r"llama-3\.1-8b +8\.03 B", call("models").stdout)
    models = {model["name"]: model for model in json.loads(call("models", "--json").stdout)}
    assert models["llama-3.1-8b"]["kv_bytes_per_token"] == 131072
    assert re.search(r"h100-sxm-80gb .* 3\.35 TB/s", call("profiles").stdout)
    gpus = {gpu["name"]: gpu for gpu in json.loads(call("profiles", "--json").stdout)}
    assert gpus["h100-sxm-80gb"]["hbm_bandwidth"] == pytest.approx(3.35e12)
    assert "hbm_bandwidth: 3.35 TB/s" in call("profiles", "h100-sxm-80gb").stdout


def test_schema_is_json_that_knows_the_scenario(small: str) -> None:
    schema = json.loads(call("schema").stdout)
    assert {"base", "model", "workload", "cluster", "engine", "slo"} <= set(schema["properties"])
    assert "required" not in schema  # a scenario with a base may leave anything out
    assert schema["$defs"]["EngineSpec"]["properties"]["num_gpu_blocks"]["description"]


def test_gallery_lists_prints_and_copies(small: str) -> None:
    assert "quickstart" in call("gallery").stdout
    assert "azure_conv_2023.csv" in call("gallery", "quickstart").stdout
    result = call("gallery", "quickstart", "--copy")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert Path("traces/azure_conv_2023.csv").exists()
    Path("quickstart.yaml").write_text("mine")
    assert "kept quickstart.yaml" in call("gallery", "quickstart", "--copy").stderr
    assert Path("quickstart.yaml").read_text() == "mine"


def test_step_is_a_table_or_json_whose_operators_add_up(small: str) -> None:
    table = call("step", small, "--decodes", "8", "--prefill", "100").stdout
    assert re.search(r"attention_decode +32 ", table)
    explained = json.loads(call("step", small, "--decodes", "8", "--prefill", "100", "--json").stdout)
    assert explained["tokens"] == 108
    assert sum(operator["time"] for operator in explained["operators"]) == pytest.approx(
        explained["gpu_time"], abs=1e-12
    )


def test_step_is_written_as_a_trace_for_perfetto(small: str) -> None:
    assert "ends in .json" in refused("step", small, "--timeline", "small.yaml")
    stages = "cluster.pipeline_parallel=2"
    assert "on several stages" in refused("step", small, "--decodes", "4", "--timeline", "step.json", stages)
    result = call("step", small, "--decodes", "4", "--timeline", "step.json")
    assert result.exit_code == 0
    assert result.stderr == "wrote step.json; open it at ui.perfetto.dev\n"
    events = json.loads(Path("step.json").read_text())["traceEvents"]
    assert [event for event in events if event["ph"] == "X" and event["cat"] == "kernel"]


def test_memory_speaks_the_words_of_the_start_up_log(small: str) -> None:
    ledger = json.loads(call("memory", small, "--json").stdout)
    text = call("memory", small).stdout
    assert f"GPU KV cache size: {ledger['kv_tokens']:,} tokens" in text
    assert "Maximum concurrency for 131,072 tokens per request" in text
    stated = call("memory", small, "engine.num_gpu_blocks=9000", "engine.max_model_len=4096").stdout
    assert "9,000 blocks of 16, by engine.num_gpu_blocks" in stated


def test_sweep_writes_table_and_plot_and_goes_on_where_it_was(small: str) -> None:
    result = call("sweep", small, "--rates", "2,4", "cluster.replicas=1,2", "-o", "out", "--workers", "1")
    assert result.exit_code == 0
    assert len(re.findall(r"stable", result.stdout)) == 4
    assert {"sweep.csv", "sweep.json", "latency_throughput.png", "pareto.svg", "points"} <= names("out")
    stamps = {file: file.stat().st_mtime_ns for file in Path("out/points").iterdir()}
    rows = json.loads(call("sweep", small, "--rates", "2,4,6", "-o", "out", "--workers", "1", "--json").stdout)
    assert [row["workload.arrivals.rate"] for row in rows] == [2, 4, 6]
    assert {file: file.stat().st_mtime_ns for file in stamps} == stamps


def test_rates_of_a_trace_are_its_speedup(small: str) -> None:
    result = call(
        "sweep", "quickstart", "workload.trace.limit=50", "--rates", "5,10", "-o", "out", "--workers", "1", "--json"
    )
    assert [row["offered_rate"] for row in json.loads(result.stdout)] == pytest.approx([5, 10])


def test_sweep_says_which_deployments_cannot_exist(small: str) -> None:
    result = call("sweep", small, "model=llama-3.1-8b,llama-3.1-70b", "-o", "out", "--workers", "1")
    assert result.exit_code == 0
    assert "left out: " in result.stderr
    alone = call("sweep", small, "model=llama-3.1-70b", "-o", "none", "--workers", "1")
    assert alone.exit_code == 2


def test_capacity_answers_people_and_programs(small: str) -> None:
    arguments = ["capacity", small, "--seeds", "2", "--workers", "1", "--rate", "100", "cluster.price_per_gpu_hour=2.5"]
    text = call(*arguments).stdout
    for word in (
        "Capacity",
        "requests/s",
        "95 % interval",
        "Fails next",
        "What binds",
        "per million output tokens",
        "Fleet",
    ):
        assert word in text
    answer = json.loads(call(*arguments, "--json").stdout)
    assert answer["interval"][0] <= answer["capacity"] <= answer["interval"][1]
    assert [one["seed"] for one in answer["seeds"]] == [0, 1]
    assert answer["fleet"]["replicas"] >= 1
    assert answer["cost_per_million_output_tokens"] > 0


def test_trace_is_converted_and_replayed(small: str) -> None:
    Path("azure.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    assert call("trace", "convert", "azure.csv", "mine.csv", "--format", "azure").exit_code == 0
    replayed = call("run", small, "workload={trace: {file: mine.csv, format: csv}}", "--json")
    assert json.loads(replayed.stdout)["total_output_tokens"] == 153
    assert "already" in refused("trace", "convert", "azure.csv", "mine.csv", "--format", "azure")


def test_fidelity_ends_with_1_where_a_step_differs(small: str) -> None:
    golden = Path(__file__).parent / "golden"
    for name in ("basic_0.in.json", "basic_0.trace.json.gz"):
        shutil.copy(golden / name, name)
    same = call("fidelity", ".", "--json", "comparison.json")
    assert same.exit_code == 0
    assert "all equal" in same.stdout
    assert json.loads(Path("comparison.json").read_text())["ok"]
    with gzip.open("basic_0.trace.json.gz", "rt") as file:
        trace = json.load(file)
    trace["steps"][3]["free_blocks"] = -1
    Path("basic_0.trace.json").write_text(json.dumps(trace))
    Path("basic_0.trace.json.gz").unlink()
    different = call("fidelity", ".")
    assert different.exit_code == 1
    assert "step 3: free_blocks" in different.stdout


def test_interrupt_ends_quietly_and_writes_nothing(small: str) -> None:
    code = (
        "import os, signal; from simserve.cli import main; import simserve.simulation as s\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background\n"
        "s.simulate = lambda *_: os.kill(os.getpid(), signal.SIGINT)\nmain()"
    )
    command = [sys.executable, "-c", code, "run", small, "-o", "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert names() == {small}


def test_interrupted_sweep_with_processes_leaves_no_traceback_and_keeps_what_is_done(small: str) -> None:
    rates = ",".join(str(rate) for rate in range(1, 200))
    command = [sys.executable, "-m", "simserve", "sweep", small, "--rates", rates, "-o", "out", "--workers", "2"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not list(Path("out/points").glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (130, "")
    assert stderr == "out keeps the runs that are done; the same command goes on from there\ninterrupted\n"
    assert list(Path("out/points").glob("*.json"))
    assert not list(Path("out/points").glob("*.partial"))
