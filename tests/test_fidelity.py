"""`simserve fidelity`: what equals a recording passes, and every way not to equal it is seen and named."""

import copy
import gzip
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from simserve.spec.errors import ScenarioError
from simserve.validation.fidelity import compare_workload, find_difference, print_fidelity, run_fidelity
from simserve.validation.recording import parse_workload
from simserve.validation.replay import Replay

GOLDEN = Path(__file__).parent / "golden"
WORKLOADS = sorted(GOLDEN.glob("*.in.json"))


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.name.removesuffix(".in.json"))
def test_scheduler_decides_what_vllm_decided(path: Path) -> None:
    comparison = compare_workload(path)
    assert comparison.difference is None
    assert comparison.engine.startswith("vllm 0.32.0")


def test_all_recorded_workloads_are_here() -> None:
    assert len(WORKLOADS) == 52


def test_runs_are_taken_at_once_and_not_step_by_step() -> None:
    workload = parse_workload(json.loads((GOLDEN / "basic_0.in.json").read_text()))
    replay = Replay(workload)
    while not replay.is_over:
        if not replay.jump():
            replay.step()
    assert replay.num_jumped_steps > replay.num_steps / 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one workload and its trace, unzipped."""
    (tmp_path / "chat.in.json").write_text((GOLDEN / "async_0.in.json").read_text())
    trace = gzip.decompress((GOLDEN / "async_0.trace.json.gz").read_bytes())
    (tmp_path / "chat.trace.json").write_bytes(trace)
    return tmp_path


def change(folder: Path, **changes: object) -> None:
    trace = folder / "chat.trace.json"
    trace.write_text(json.dumps(json.loads(trace.read_text()) | changes))


def refused(folder: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        run_fidelity(folder)
    return str(caught.value)


def test_an_equal_folder_passes_and_says_how_much_was_compared(folder: Path) -> None:
    report = run_fidelity(folder, folder / "out.json")
    assert report.ok
    assert report.num_steps == 169
    assert json.loads((folder / "out.json").read_text())["ok"] is True
    out = io.StringIO()
    print_fidelity(report, Console(file=out, width=100))
    assert "1 workloads, 169 steps: all equal" in out.getvalue()


RECORDED = json.loads(gzip.decompress((GOLDEN / "async_0.trace.json.gz").read_bytes()))
FIELDS = sorted({field for step in RECORDED["steps"] for field in step})


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("resolution", ["steps", "runs"])
def test_a_change_of_any_field_is_found_at_its_step(field: str, resolution: str) -> None:
    steps = copy.deepcopy(RECORDED["steps"])
    index = next(i for i, step in enumerate(steps) if i > 40 and field in step)
    steps[index][field] = "something else"
    difference = find_difference(RECORDED, RECORDED | {"steps": steps}, resolution)
    assert difference is not None
    assert (difference.step, difference.field) == (index, field)
    del steps[index][field]
    difference = find_difference(RECORDED, RECORDED | {"steps": steps}, resolution)
    assert difference is not None
    assert (difference.step, difference.field) == (index, field)


@pytest.mark.parametrize("field", ["num_steps", "stalled", "unfinished", "totals", "summary"])
def test_a_change_of_the_whole_trace_is_found(field: str) -> None:
    difference = find_difference(RECORDED, RECORDED | {field: None})
    assert difference is not None
    assert (difference.step, difference.field) == (-1, field)


def test_the_order_of_scheduled_and_of_finishing_counts(folder: Path) -> None:
    steps = copy.deepcopy(RECORDED["steps"])
    index, step = next((i, s) for i, s in enumerate(steps) if len(s.get("scheduled", ())) > 1)
    step["scheduled"] = dict(reversed(step["scheduled"].items()))
    difference = find_difference(RECORDED, RECORDED | {"steps": steps})
    assert difference is not None
    assert (difference.step, difference.field) == (index, "order of scheduled")
    backwards = dict(reversed(RECORDED["summary"].items()))
    assert find_difference(RECORDED, RECORDED | {"summary": backwards}) is not None


def test_a_recording_that_goes_on_differs(folder: Path) -> None:
    change(folder, steps=RECORDED["steps"][:-1])
    difference = run_fidelity(folder).comparisons[0].difference
    assert difference is not None
    assert (difference.step, difference.field) == (168, "num_steps")


def test_a_difference_is_named_in_table_and_file(folder: Path) -> None:
    steps = copy.deepcopy(RECORDED["steps"])
    steps[7]["free_blocks"] += 1
    change(folder, steps=steps)
    report = run_fidelity(folder, folder / "out.json")
    assert not report.ok
    written = json.loads((folder / "out.json").read_text())
    assert written["ok"] is False
    assert written["comparisons"][0]["difference"]["step"] == 7
    out = io.StringIO()
    print_fidelity(report, Console(file=out, width=100))
    assert "step 7: free_blocks" in out.getvalue()
    assert "1 differ" in out.getvalue()


def test_what_cannot_be_compared_is_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert "no such folder" in refused(folder / "nowhere")
    assert "no workload" in refused(tmp_path_factory.mktemp("empty"))
    change(folder, steps=None)
    assert "not a trace" in refused(folder)
    (folder / "chat.trace.json").write_text("{")
    assert "not JSON" in refused(folder)
    (folder / "chat.trace.json").unlink()
    assert "no recorded trace" in refused(folder)
    (folder / "chat.trace.json.gz").write_bytes(b"not gzip")
    assert "cannot be read" in refused(folder)
    (folder / "chat.in.json").write_text("[]")
    (folder / "chat.trace.json.gz").write_bytes(gzip.compress(json.dumps(RECORDED).encode()))
    assert "chat.in.json" in refused(folder)


def test_a_trace_of_another_workload_is_refused(folder: Path) -> None:
    config = dict(RECORDED["config"])
    change(folder, config=config | {"block_size": 3})
    workload = folder / "chat.in.json"
    workload.write_text(json.dumps(json.loads(workload.read_text()) | {"config": {"block_size": 16}}))
    assert "block_size is 16 here and 3 in the trace" in refused(folder)
    change(folder, config=config | {"num_lookahead_tokens": 3})
    assert "num_lookahead_tokens" in refused(folder)


def test_a_file_that_cannot_be_written_is_refused(folder: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be written"):
        run_fidelity(folder, folder / "nowhere" / "out.json")


GOOD = {"id": "a", "arrival_step": 0, "prompt_len": 5, "output_len": 3}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (GOOD | {"id": "a"}, "two requests have this id"),
        (GOOD | {"id": "b", "prompt_len": 2048}, "leaves no token"),
        (GOOD | {"id": "b", "parent": "c"}, "is not an earlier request"),
        (GOOD | {"id": "b", "parent": "a", "prompt_len": 7}, "shorter than its parent's conversation, 8"),
        (GOOD | {"id": "b", "max_tokens": 2}, "below output_len"),
        (GOOD | {"id": "b", "prefix_group": 1, "prefix_len": 6}, "longer than the prompt"),
        (GOOD | {"id": "b", "prefix_group": 1, "parent": "a", "prompt_len": 9}, "not both"),
        (GOOD | {"id": "b", "prompt": 9}, "prompt"),
        ({"id": "b"}, "arrival_step"),
    ],
)
def test_requests_that_make_no_sense_are_refused(request_: dict[str, object], message: str) -> None:
    content = {"name": "x", "config": {}, "requests": [GOOD, request_]}
    with pytest.raises(ScenarioError, match=message):
        parse_workload(content)


def test_requests_out_of_order_are_refused() -> None:
    requests = [GOOD | {"arrival_step": 2}, GOOD | {"id": "b"}]
    with pytest.raises(ScenarioError, match="in order of arrival_step"):
        parse_workload({"name": "x", "config": {}, "requests": requests})
