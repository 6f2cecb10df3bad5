"""Sweeps: the grid, its seeds, the store that lets one go on, and what is written."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.planning import sweep
from simserve.planning.executor import open_executor
from simserve.planning.sweep import Axis, damaged_points, parse_axis, run_sweep, scenario_key, sweep_points
from simserve.spec.errors import ScenarioError

SCENARIO = """
name: small
model: llama-3.1-8b
workload:
  arrivals: {process: poisson, rate: 3}
  input: 100
  output: 10
  num_requests: 20
cluster: {gpu: h100-sxm-80gb}
slo: {ttft: 500 ms}
"""
RATES = Axis("workload.arrivals.rate", ("2", "4"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO)
    return file


def test_axis_splits_at_the_commas_between_values() -> None:
    assert parse_axis("a.b=1,2, 3") == Axis("a.b", ("1", "2", "3"))
    assert parse_axis("w.input={min: 1, max: 2},[3, 4],'5,6'") == Axis(
        "w.input", ("{min: 1, max: 2}", "[3, 4]", "'5,6'")
    )
    assert parse_axis("slo.ttft=500 ms,1 s").values == ("500 ms", "1 s")


@given(st.lists(st.sampled_from(["1", "{a: 1, b: 2}", "[1, 2]", "'x,y'", "1 ms"]), min_size=1))
def test_axis_gives_back_the_values_that_were_joined(values: list[str]) -> None:
    assert parse_axis(f"key={','.join(values)}").values == tuple(values)


@pytest.mark.parametrize("text", ["rate", "=1,2", "rate=", "rate=1,,2", "rate=1,"])
def test_axis_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError):
        parse_axis(text)


def test_grid_is_the_product_of_axes_and_seeds(path: Path) -> None:
    points = sweep_points(path, [RATES, Axis("cluster.replicas", ("1", "2", "3"))], seeds=2)
    assert len(points) == len({point.key for point in points}) == 12
    assert [point.scenario.seed for point in points[:2]] == [0, 1]
    assert points[0].settings == {"workload.arrivals.rate": "2", "cluster.replicas": "1"}
    assert points[-1].scenario is not None
    assert points[-1].scenario.cluster.replicas == 3


def test_unknown_key_is_refused_before_anything_runs(path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"replica.*did you mean"):
        sweep_points(path, [Axis("cluster.replica", ("1", "2"))])


def test_key_given_twice_and_seeds_given_twice_are_refused(path: Path) -> None:
    with pytest.raises(ScenarioError, match="given twice"):
        sweep_points(path, [RATES, RATES])
    with pytest.raises(ScenarioError, match="seed"):
        sweep_points(path, [Axis("seed", ("1", "2"))], seeds=2)


def test_points_that_are_there_are_not_run_again(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, ran = tmp_path / "out", []
    original = sweep.run_point

    def counted(point: sweep.Point) -> sweep.Row:
        ran.append(point.key)
        return original(point)

    monkeypatch.setattr(sweep, "run_point", counted)
    few, more = sweep_points(path, [RATES]), sweep_points(path, [RATES._replace(values=("2", "4", "8"))])
    with open_executor(1) as executor:
        first = run_sweep(few, out, executor)
        again = run_sweep(few, out, executor)
        longer = run_sweep(more, out, executor)
        assert ran == [point.key for point in more]
        forced = run_sweep(few, out, executor, force=True)
    assert ran[3:] == [point.key for point in few]
    assert first == again == longer[:2] == forced


def test_sweep_that_was_stopped_goes_on_where_it_was(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, out = sweep_points(path, [RATES]), tmp_path / "out"
    original = sweep.run_point

    def interrupted(point: sweep.Point) -> sweep.Row:
        if point.key == points[1].key:
            raise KeyboardInterrupt
        return original(point)

    monkeypatch.setattr(sweep, "run_point", interrupted)
    with open_executor(1) as executor, pytest.raises(KeyboardInterrupt):
        run_sweep(points, out, executor)
    assert [file.stem for file in (out / "points").iterdir()] == [points[0].key]
    monkeypatch.setattr(sweep, "run_point", original)
    seen: list[int] = []
    with open_executor(1) as executor:
        assert len(run_sweep(points, out, executor, seen.append)) == 2
    assert seen == [1, 2]


def test_processes_give_the_rows_of_one_process(path: Path, tmp_path: Path) -> None:
    points = sweep_points(path, [RATES], seeds=2)
    with open_executor(1) as here, open_executor(2) as elsewhere:
        assert run_sweep(points, tmp_path / "a", here) == run_sweep(points, tmp_path / "b", elsewhere)


def test_files_hold_a_row_for_each_point(path: Path, tmp_path: Path) -> None:
    with open_executor(1) as executor:
        rows = run_sweep(sweep_points(path, [RATES]), tmp_path / "out", executor)
    assert json.loads((tmp_path / "out" / "sweep.json").read_text()) == rows
    with (tmp_path / "out" / "sweep.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["workload.arrivals.rate"] for row in table] == ["2", "4"]
    assert [float(row["p95_ttft_ms"]) for row in table] == [row["p95_ttft_ms"] for row in rows]
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_deployment_that_cannot_exist_is_a_row_with_an_error_and_the_others_go_on(path: Path, tmp_path: Path) -> None:
    models = Axis("model", ("llama-3.1-8b", "llama-3.1-70b"))
    with open_executor(1) as executor:
        rows = run_sweep(sweep_points(path, [models]), tmp_path / "out", executor)
    assert rows[0]["error"] is None
    assert rows[0]["completed"] == 20
    assert "weights" in rows[1]["error"]
    assert "completed" not in rows[1]


def test_an_invalid_value_is_a_row_with_an_error_that_names_it_and_the_others_run(path: Path, tmp_path: Path) -> None:
    """faults.md: tensor_parallel=1,2,3,4 stopped before any run, since 3 does not divide the heads."""
    with open_executor(1) as executor:
        points = sweep_points(path, [Axis("cluster.tensor_parallel", ("1", "3"))], seeds=2)
        rows = run_sweep(points, tmp_path / "out", executor)
    assert [row["error"] is None for row in rows] == [True, True, False]
    assert rows[2]["error"].startswith("cluster.tensor_parallel=3: ")
    assert "cannot be cut into 3 equal parts" in rows[2]["error"]


@pytest.mark.parametrize(
    "damage", ["{}", '{"completed": 7}', "", '{"checksum": 1, "summary": {"completed": 7}}', "[1]"]
)
def test_a_stored_point_that_is_damaged_is_run_again(path: Path, tmp_path: Path, damage: str) -> None:
    """faults.md: stored points were believed, or ended in a traceback."""
    points = sweep_points(path, [RATES])
    with open_executor(1) as executor:
        rows = run_sweep(points, tmp_path, executor)
        stored = tmp_path / "points" / f"{points[0].key}.json"
        stored.write_text(damage)
        assert damaged_points(points, tmp_path) == 1
        assert run_sweep(points, tmp_path, executor) == rows
    assert damaged_points(points, tmp_path) == 0


def test_a_stored_number_that_was_changed_is_not_believed(path: Path, tmp_path: Path) -> None:
    points = sweep_points(path, [RATES])
    with open_executor(1) as executor:
        rows = run_sweep(points, tmp_path, executor)
        stored = tmp_path / "points" / f"{points[0].key}.json"
        stored.write_text(stored.read_text().replace('"completed": 20', '"completed": 19'))
        assert run_sweep(points, tmp_path, executor) == rows


def test_key_follows_all_that_a_run_depends_on(path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,input_len,output_len\n0,10,2\n1,10,2\n")
    text = f"workload={{trace: {{file: {trace}, format: csv}}}}"
    with_trace = sweep.load_scenario(path, [text])
    before = scenario_key(with_trace)
    assert before == scenario_key(sweep.load_scenario(path, [text]))
    assert before != scenario_key(with_trace.with_overrides(["seed=1"]))
    trace.write_text("arrival,input_len,output_len\n0,10,2\n1,10,3\n")
    assert before != scenario_key(with_trace)
