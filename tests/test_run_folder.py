"""The folder of a run: whole or not there, the same bytes every time, and enough to make every report again."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from made_result import SECOND, Toy, poisson, with_status
from scenario_text import scenario

from simserve.report import records
from simserve.report.run_folder import check_free, read_run
from simserve.report.summary import summarize
from simserve.report.write_run import write_run
from simserve.spec.errors import ScenarioError
from simserve.spec.result import Result

FILES = {"summary.json", "requests.parquet", "steps.parquet", "gaps.parquet", "scenario.yaml"}


CLASSES = "workload.classes=[{name: chat, share: 0.5}, {name: batch, share: 0.5}]"


@pytest.fixture
def result() -> Result:
    toy = poisson(120, rate=15, stalls={5: {3: 40}}, replicas=2)
    question = scenario("slo={ttft: 100 ms}", CLASSES)
    memory = {"total": 85e9, "num_gpu_blocks": 4097, "source": "ledger"}
    made = toy.run(scenario=question, class_names=("chat", "batch"), memory=memory)
    made.requests["class_index"][:] = np.arange(120) % 3 == 0
    with_status(made, 9, "timed_out")
    with_status(made, 10, "unfinished")
    return made


def hashes(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_has_its_files_and_nothing_is_left_beside_it(result: Result, tmp_path: Path) -> None:
    write_run(result, tmp_path / "deep" / "run")
    assert {p.name for p in (tmp_path / "deep" / "run").iterdir()} == FILES
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["run"]


def test_records_come_back_equal(result: Result, tmp_path: Path) -> None:
    write_run(result, tmp_path / "run")
    back = read_run(tmp_path / "run").result
    for mine, theirs in ((result.requests, back.requests), (result.steps, back.steps), (result.gaps, back.gaps)):
        assert list(mine) == list(theirs)
        for name in mine:
            assert np.array_equal(mine[name], theirs[name], equal_nan=mine[name].dtype.kind == "f"), name
    assert back.scenario == result.scenario
    assert back.class_names == result.class_names
    assert dict(back.memory) == dict(result.memory)


def test_the_folder_alone_gives_the_summary_again(result: Result, tmp_path: Path) -> None:
    write_run(result, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert summarize(run.result) == run.summary == summarize(result)
    assert json.dumps(summarize(run.result)) == json.dumps(run.summary)


def test_ticks_come_back_as_ticks(tmp_path: Path) -> None:
    result = Toy([0, 5], [10, 10], [5, 9]).run(scenario=scenario())
    for name in ("first_token_time", "gap", "gap_growth"):
        result.steps[name] = np.rint(result.steps[name] * SECOND).astype(np.int64)
    write_run(result, tmp_path / "run")
    back = read_run(tmp_path / "run")
    assert back.result.steps["gap"].dtype == np.int64
    assert summarize(back.result) == back.summary


def test_columns_are_those_of_the_manual(result: Result, tmp_path: Path) -> None:
    run = write_run(result, tmp_path / "run")
    requests = """request_id class session turn replica arrival engine_arrival scheduled first_token finish
        input_len output_len cached_len num_preemptions status"""
    steps = """replica step steps start end prefill_tokens decodes context_tokens running waiting
        free_blocks preemptions gpu_time cpu_time graph"""
    assert set(requests.split()) < set(pq.read_schema(tmp_path / "run" / "requests.parquet").names)
    assert set(steps.split()) < set(pq.read_schema(tmp_path / "run" / "steps.parquet").names)
    assert run.requests["class"].tolist()[:3] == ["batch", "chat", "chat"]
    assert run.requests["status"].value_counts().to_dict()["completed"] == 118
    assert len(run.steps) == len(result.steps["step"])


def test_same_run_same_bytes(result: Result, tmp_path: Path) -> None:
    write_run(result, tmp_path / "a", csv=True)
    write_run(result, tmp_path / "b", csv=True)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["date"] is None


def test_row_groups_change_nothing(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ROW_GROUP", 7)
    write_run(result, tmp_path / "run", csv=True)
    assert pq.ParquetFile(tmp_path / "run" / "requests.parquet").num_row_groups == 18
    assert summarize(read_run(tmp_path / "run").result) == summarize(result)


def test_csv_holds_the_same_rows(result: Result, tmp_path: Path) -> None:
    write_run(result, tmp_path / "run", csv=True)
    for name in ("requests", "steps"):
        stored = pq.read_table(tmp_path / "run" / f"{name}.parquet")
        plain = [(f.name, f.type.value_type if f.name in ("class", "status") else f.type) for f in stored.schema]
        options = pyarrow.csv.ConvertOptions(column_types=dict(plain))
        assert pyarrow.csv.read_csv(tmp_path / "run" / f"{name}.csv", convert_options=options).equals(
            stored.cast(pa.schema(plain))
        )


def test_an_existing_run_is_kept(result: Result, tmp_path: Path) -> None:
    write_run(result, tmp_path / "run")
    before = hashes(tmp_path / "run")
    with pytest.raises(FileExistsError, match="run exists"):
        write_run(poisson(5, rate=1).run(scenario=scenario()), tmp_path / "run")
    assert hashes(tmp_path / "run") == before


def test_force_replaces_a_run(result: Result, tmp_path: Path) -> None:
    write_run(poisson(5, rate=1).run(scenario=scenario()), tmp_path / "run")
    write_run(result, tmp_path / "run", force=True)
    assert read_run(tmp_path / "run").summary["num_prompts"] == 120
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_force_replaces_nothing_but_runs(result: Result, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(ScenarioError, match="not the folder of a run"):
        write_run(result, tmp_path / "home", force=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


def test_an_empty_folder_is_free(result: Result, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    check_free(tmp_path / "run")
    write_run(result, tmp_path / "run")
    assert {p.name for p in (tmp_path / "run").iterdir()} == FILES


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet", "gaps.parquet"])
def test_a_failure_leaves_nothing_half_there(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException
) -> None:
    write_run(result, tmp_path / "old")
    before = hashes(tmp_path / "old")

    def failing(columns: Any, class_names: Any, path: Path) -> None:
        records.write_parquet(columns, class_names, path)
        if path.name == name:
            raise error

    monkeypatch.setattr("simserve.report.write_run.write_parquet", failing)
    with pytest.raises(type(error)):
        write_run(result, tmp_path / "new")
    with pytest.raises(type(error)):
        write_run(result, tmp_path / "old", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert hashes(tmp_path / "old") == before


def test_a_failed_exchange_puts_the_old_run_back(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(result, tmp_path / "run")
    before = hashes(tmp_path / "run")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.suffix == ".partial":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no"):
        write_run(result, tmp_path / "run", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert hashes(tmp_path / "run") == before


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"summary\.json is missing"):
        read_run(tmp_path)
