"""The whole workload: its laws, its independent sources of randomness, the same bytes everywhere, run = replay."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_text import scenario

from simserve.spec import resources
from simserve.spec.errors import ScenarioError
from simserve.spec.load import load_scenario
from simserve.spec.ticks import to_seconds, to_ticks
from simserve.workload.columns import Arrival, Rows, clock_ticks
from simserve.workload.recorded import trace_of
from simserve.workload.trace_writer import write_trace
from simserve.workload.workload import Workload, build_workload

ONLY_RECORDED = {"client_input_len", "input_counted_by", "shared_text", "trace_report"}
COLUMNS = [
    name
    for name in Workload.__slots__
    if name not in {"class_names", "users", "skipped_rows", "shortened_sessions"} | ONLY_RECORDED
]
LENGTHS = (
    "workload.input={distribution: lognormal, mean: 512, cv: 1, max: 8192}",
    "workload.output={distribution: lognormal, mean: 128, cv: 1}",
)
CLASSES = (
    "workload.classes=[{name: chat, share: 0.75}, {name: batch, share: 0.25, priority: 2, output: 900,"
    " max_tokens: 1000}]"
)


def build(*overrides: str) -> Workload:
    return build_workload(scenario(*overrides))


def assert_same(one: Workload, other: Workload, *without: str) -> None:
    for name in COLUMNS:
        if name not in without:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


WORKLOADS = {
    "poisson": LENGTHS,
    "gamma": (*LENGTHS, "workload.arrivals={process: gamma, rate: 8, cv: 2}"),
    "ramp": (*LENGTHS, "workload.arrivals={process: ramp, start_rate: 1, end_rate: 9}"),
    "stages": (
        *LENGTHS,
        "workload.arrivals={process: piecewise, stages: [{rate: 2, duration: 30 s}, {rate: 20, duration: 60 s}]}",
    ),
    "batch": (*LENGTHS, "workload.arrivals={process: all_at_once}"),
    "closed loop": (*LENGTHS, "workload.arrivals={process: closed_loop, users: 7, think_time: 2 s}"),
    "duration": (*LENGTHS, "workload.num_requests=null", "workload.duration=10 s"),
    "limits": (*LENGTHS, "workload.max_tokens={distribution: uniform, min: 1, max: 300}"),
    "prefixes": (*LENGTHS, "workload.shared_prefix={groups: 3, length: 200}"),
    "classes": (*LENGTHS, CLASSES),
    "sessions": (*LENGTHS, "workload.sessions={turns: {distribution: uniform, min: 1, max: 6}, think_time: 3 s}"),
    "class sessions": (*LENGTHS, CLASSES, "workload.sessions={turns: 3, first_input: 900}"),
    "trace": ("workload={trace: {file: traces/azure_conv_2023.csv, format: csv, limit: 100}}",),
    "re-timed": (
        "workload={trace: {file: traces/azure_conv_2023.csv, format: csv, limit: 100},"
        " arrivals: {process: poisson, rate: 3}}",
    ),
    "trace loop": (
        "workload={trace: {file: traces/azure_conv_2023.csv, format: csv, limit: 100},"
        " arrivals: {process: closed_loop, users: 3, think_time: 1 s}}",
    ),
    "trace classes": (
        "workload={trace: {file: traces/azure_conv_2023.csv, format: csv, limit: 100},"
        " classes: [{name: a, share: 0.5}, {name: b, share: 0.5, priority: 1}]}",
    ),
}


@pytest.mark.parametrize("overrides", WORKLOADS.values(), ids=WORKLOADS)
def test_every_workload_keeps_the_laws(overrides: tuple[str, ...]) -> None:
    workload = build(*overrides)
    count = len(workload)
    assert count == 100 or "duration" in str(overrides)
    for name in COLUMNS:
        column = getattr(workload, name)
        assert column.shape == (count,), name
        assert column.dtype == np.int64, name
    known = workload.arrival[workload.arrival >= 0]
    assert np.all(np.diff(known) >= 0)
    assert np.all((workload.arrival >= 0) | (workload.parent >= 0) | (workload.users > 0))
    assert np.all((workload.input_len >= 1) & (workload.output_len >= 1))
    assert np.all(workload.max_tokens >= workload.output_len)
    assert np.all((workload.class_index >= 0) & (workload.class_index < len(workload.class_names)))
    assert np.all((workload.prefix_len >= 0) & (workload.prefix_len <= workload.input_len))
    np.testing.assert_array_equal(workload.prefix_len > 0, workload.prefix_group >= 0)
    assert np.all(workload.parent < np.arange(count))
    assert np.all((workload.turn > 0) == (workload.parent >= 0))
    assert np.all(workload.think >= 0)


@pytest.mark.parametrize("overrides", WORKLOADS.values(), ids=WORKLOADS)
def test_the_same_seed_gives_the_same_workload_and_another_seed_another(overrides: tuple[str, ...]) -> None:
    assert_same(build(*overrides), build(*overrides))
    if overrides != WORKLOADS["trace"] and overrides != WORKLOADS["trace loop"]:
        with pytest.raises(AssertionError):
            assert_same(build(*overrides), build(*overrides, "seed=1"))


def digest(workload: Workload) -> str:
    return hashlib.sha256(b"".join(getattr(workload, name).tobytes() for name in COLUMNS)).hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_with_another_hash_seed_builds_the_same_bytes(hash_seed: str) -> None:
    overrides = (*WORKLOADS["class sessions"], "workload.shared_prefix={groups: 3, length: 200}")
    program = f"import test_workload as t; print(t.digest(t.build(*{overrides!r})))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parent)}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == digest(build(*overrides))


# One stream per source of randomness

CHANGES = {
    "input_len": "workload.input={distribution: uniform, min: 1, max: 100}",
    "output_len": "workload.output={distribution: normal, mean: 100, stddev: 30}",
    "arrival": "workload.arrivals={process: gamma, rate: 3, burstiness: 0.5}",
    "max_tokens": "workload.max_tokens=100000",
    "prefix_len": "workload.shared_prefix={groups: 2, length: 100}",
}


@pytest.mark.parametrize(("column", "override"), CHANGES.items())
@pytest.mark.parametrize("kind", ["poisson", "classes"])
def test_a_change_of_one_source_leaves_the_others_bit_equal(kind: str, column: str, override: str) -> None:
    before, after = build(*WORKLOADS[kind]), build(*WORKLOADS[kind], override)
    follows = {"output_len": ["max_tokens"], "prefix_len": ["prefix_group"]}.get(column, [])
    assert_same(before, after, column, *follows)
    assert np.any(getattr(before, column) != getattr(after, column))


def test_a_class_does_not_disturb_the_lengths_of_another() -> None:
    before = build(*LENGTHS, CLASSES)
    after = build(*LENGTHS, CLASSES.replace("output: 900", "output: {distribution: uniform, min: 1, max: 800}"))
    assert_same(before, after, "output_len", "max_tokens")
    chat = before.class_index == 0
    np.testing.assert_array_equal(before.output_len[chat], after.output_len[chat])


def test_lengths_are_drawn_independently_of_each_other_and_of_the_arrivals() -> None:
    count = 20_000
    workload = build(*LENGTHS, f"workload.num_requests={count}")
    gaps = np.diff(workload.arrival, prepend=0)
    for one, other in ((gaps, workload.input_len), (workload.input_len, workload.output_len)):
        assert abs(np.corrcoef(np.log(one), np.log(other))[0, 1]) < 5 / np.sqrt(count)


# Limits, classes, closed loops


def test_an_answer_ends_at_its_limit() -> None:
    free, limited = build(*LENGTHS), build(*LENGTHS, "workload.max_tokens=100")
    np.testing.assert_array_equal(limited.max_tokens, 100)
    np.testing.assert_array_equal(limited.output_len, np.minimum(free.output_len, 100))


def test_classes_have_their_shares_priorities_and_lengths() -> None:
    count = 40_000
    workload = build(*LENGTHS, CLASSES, f"workload.num_requests={count}")
    batch = workload.class_index == 1
    assert workload.class_names == ("chat", "batch")
    assert np.mean(batch) == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / count))
    np.testing.assert_array_equal(workload.priority, np.where(batch, 2, 0))
    assert set(workload.output_len[batch].tolist()) == {900}
    assert set(workload.max_tokens[batch].tolist()) == {1000}
    np.testing.assert_array_equal(workload.max_tokens[~batch], workload.output_len[~batch])


def test_a_workload_without_classes_is_one_class_named_default() -> None:
    plain, named = build(*LENGTHS), build(*LENGTHS, "workload.classes=[{name: default, share: 1}]")
    assert_same(plain, named)
    assert plain.class_names == named.class_names == ("default",)


def test_in_a_closed_loop_the_simulation_decides_the_times() -> None:
    workload = build(*WORKLOADS["closed loop"])
    assert workload.users == 7
    np.testing.assert_array_equal(workload.arrival, -1)
    np.testing.assert_array_equal(workload.think, to_ticks(2))
    assert_same(workload, build(*WORKLOADS["poisson"]), "arrival", "think")


@given(st.permutations(range(20)))
def test_a_row_reaches_the_fleet_with_what_its_columns_say(order: list[int]) -> None:
    """Whatever an `Arrival` may have besides: all fields are columns, taken together or one by one."""
    workload = build(CLASSES, "workload.shared_prefix={groups: 3, length: 40}", "workload.num_requests=20")
    arrivals = list(workload.arrivals(np.array(order)))
    assert [arrival.row for arrival in arrivals] == order
    for name in Arrival._fields[1:]:
        assert [getattr(arrival, name) for arrival in arrivals] == getattr(workload, name)[order].tolist()
    rows = Rows(workload)
    assert [rows.arrival(row) for row in order] == arrivals


def test_an_empty_workload_is_a_workload() -> None:
    for sessions in ("workload.sessions=null", "workload.sessions={turns: 2}"):
        assert (
            len(build("workload.arrivals.rate=1e-9", "workload.num_requests=null", "workload.duration=1", sessions))
            == 0
        )


# Traces


def write(folder: Path, text: str) -> str:
    path = folder / "trace.csv"
    path.write_text(text)
    return f"workload={{trace: {{file: {path}, format: csv}}}}"


def test_arrivals_beside_a_trace_re_time_it(tmp_path: Path) -> None:
    plain, timed = build(*WORKLOADS["trace"]), build(*WORKLOADS["re-timed"])
    assert_same(plain, timed, "arrival")
    np.testing.assert_array_equal(timed.arrival, build("workload.arrivals.rate=3").arrival)
    untimed = write(tmp_path, "input_len,output_len\n10,1\n20,2\n")
    retimed = build(untimed, "workload.arrivals={process: constant, rate: 4}")
    np.testing.assert_array_equal(retimed.arrival, [to_ticks(0.25), to_ticks(0.5)])
    with pytest.raises(ScenarioError, match=r"trace.speedup: arrivals beside the trace"):
        build(untimed, "workload.arrivals={process: constant, rate: 4}", "workload.trace.speedup=2")


@pytest.mark.parametrize("key", ["input", "output", "num_requests", "max_tokens"])
def test_lengths_and_counts_beside_a_trace_are_refused(key: str) -> None:
    with pytest.raises(ScenarioError, match="the trace gives"):
        build(*WORKLOADS["trace"], f"workload.{key}=10")


def test_a_traces_own_classes_and_priorities_stand(tmp_path: Path) -> None:
    trace = write(tmp_path, "arrival,input_len,output_len,class,priority\n0,1,1,b,\n1,1,1,a,5\n2,1,1,b,\n3,1,1,,\n")
    workload = build(trace)
    assert workload.class_names == ("b", "a", "default")
    np.testing.assert_array_equal(workload.class_index, [0, 1, 0, 2])
    np.testing.assert_array_equal(workload.priority, [0, 5, 0, 0])
    with pytest.raises(
        ScenarioError, match=r"trace.csv, line 5: class 'default' is not one of workload.classes \(a, b\)"
    ):
        build(trace, "workload.classes=[{name: a, share: 0.5}, {name: b, share: 0.5}]")


def test_a_traces_classes_take_the_priorities_of_the_scenario(tmp_path: Path) -> None:
    trace = write(tmp_path, "arrival,input_len,output_len,class\n0,1,1,b\n1,1,1,a\n")
    workload = build(trace, "workload.classes=[{name: a, share: 0.5, priority: 3}, {name: b, share: 0.5}]")
    assert workload.class_names == ("a", "b")
    np.testing.assert_array_equal(workload.priority, [0, 3])


def test_skipped_rows_are_counted(tmp_path: Path) -> None:
    trace = write(tmp_path, "arrival,input_len,output_len\n0,1,1\n,1,1\n3,1,1\n")
    assert build(trace, "workload.trace.skip_bad_rows=true").skipped_rows == 1


REPLAYABLE = [kind for kind in WORKLOADS if kind not in {"closed loop", "trace loop", "prefixes"}]


@pytest.mark.parametrize("kind", REPLAYABLE)
@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_1032_a_saved_workload_replays_as_the_very_same_requests(tmp_path: Path, kind: str, format: str) -> None:
    """inference-sim#1032."""
    workload = build(*WORKLOADS[kind])
    write_trace(trace_of(workload), tmp_path / f"trace.{format}")
    classes = [override for override in WORKLOADS[kind] if override == CLASSES]
    replayed = build(f"workload={{trace: {{file: {tmp_path}/trace.{format}, format: {format}}}}}")
    if len(workload.class_names) > 1 and not classes:
        np.testing.assert_array_equal(
            np.array(replayed.class_names)[replayed.class_index], np.array(workload.class_names)[workload.class_index]
        )
    assert_same(workload, replayed, "class_index", "session")
    assert_same_grouping(workload.session, replayed.session)


def assert_same_grouping(one: np.ndarray, other: np.ndarray) -> None:
    """Numbers may differ where a session that never began left a gap; who belongs together may not."""
    np.testing.assert_array_equal(one[1:] == one[:-1], other[1:] == other[:-1])


def test_what_a_trace_cannot_hold_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"closed loop"):
        trace_of(build(*WORKLOADS["closed loop"]))
    with pytest.raises(ScenarioError, match=r"trace.csv: .* CSV has no column; name it trace.jsonl"):
        write_trace(trace_of(build(*WORKLOADS["prefixes"])), tmp_path / "trace.csv")
    assert not [*tmp_path.iterdir()]


# The clock


@given(st.floats(0, 899_999))
def test_times_are_whole_nanoseconds_and_survive_a_trip_through_seconds(seconds: float) -> None:
    ticks = clock_ticks(np.array([seconds]))
    assert ticks[0] % 10_000 == 0
    assert abs(to_seconds(ticks)[0] - seconds) <= 0.5e-9 + 1e-10
    np.testing.assert_array_equal(clock_ticks(to_seconds(ticks)), ticks)
    np.testing.assert_array_equal(clock_ticks(np.array([float(repr(float(to_seconds(ticks)[0])))])), ticks)


def test_arrivals_beyond_the_clock_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"would arrive after .* s, but the clock ends"):
        build("workload.arrivals.rate=1e-5")


def test_the_azure_trace_is_whole() -> None:
    """19,366 rows, as published; sums as in the source."""
    overrides = ["workload.trace.limit=null"]
    workload = build_workload(load_scenario(resources.folder("scenarios") / "quickstart.yaml", overrides))
    assert len(workload) == 19_366
    assert workload.arrival[-1] == 3_501_721_937 * 10**7
    assert (int(workload.input_len.sum()), int(workload.output_len.sum())) == (22_361_870, 4_088_665)
