"""Order and loss: what is put in order, what is left out, at which pace it is replayed, and that all of it is said."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_text import scenario

from simserve.report.explain import explanations
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.workload.traces import Trace, read_trace

HEADER = "arrival,input_len,output_len"


def save(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def notes(trace: Trace) -> str:
    assert trace.report is not None
    return " ".join(trace.report.sentences())


def test_one_late_row_costs_no_other(tmp_path: Path) -> None:
    """Rows at 0, 9, 1 and 2 s: an importer that compares with the last row it kept loses two good ones."""
    path = save(tmp_path, "0,10,1", "9,20,2", "1,30,3", "2,40,4")
    for skip in (False, True):
        trace = read_trace(path, skip_bad_rows=skip)
        assert trace.arrival.tolist() == [0, 1, 2, 9]
        assert trace.input_len.tolist() == [10, 30, 40, 20]
        assert trace.number.tolist() == [2, 4, 5, 3]
        assert trace.skipped_rows == 0
        assert "2 rows stood behind a later one and were put in order of time." in notes(trace)


def test_a_window_of_unsorted_rows_says_which_rows_it_counts(tmp_path: Path) -> None:
    path = save(tmp_path, "0,10,1", "9,20,2", "1,30,3", "2,40,4")
    trace = read_trace(path, limit=3)
    assert trace.input_len.tolist() == [10, 30, 20]
    assert "limit and offset count rows in the order of the file." in notes(trace)
    assert "limit and offset" not in notes(read_trace(path))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_any_order_gives_the_requests_in_order_of_time(
    tmp_path_factory: pytest.TempPathFactory, times: list[int]
) -> None:
    path = save(tmp_path_factory.mktemp("trace"), *(f"{time},{row + 1},1" for row, time in enumerate(times)))
    trace = read_trace(path)
    expected = sorted(enumerate(times), key=lambda each: each[1])
    assert trace.arrival.tolist() == [time for _, time in expected]
    assert trace.input_len.tolist() == [row + 1 for row, _ in expected], "equal times stay as they stand"
    assert trace.report is not None
    late = sum(time < max(times[:row], default=0) for row, time in enumerate(times))
    assert trace.report.sorted_rows == late


def test_a_turn_that_waits_moves_with_the_turn_before_it(tmp_path: Path) -> None:
    path = save(tmp_path, "9,10,1,a,", ",20,2,a,3", "1,30,3,b,", ",40,4,b,3", header=f"{HEADER},session,think")
    trace = read_trace(path)
    assert trace.session.tolist() == ["b", "b", "a", "a"]
    assert trace.input_len.tolist() == [30, 40, 10, 20]


def test_turns_out_of_order_are_refused_and_only_they_are_left_out(tmp_path: Path) -> None:
    path = save(tmp_path, "5,10,1,a", "0,5,1,b", "4,20,2,a", "6,40,2,a", header=f"{HEADER},session")
    with pytest.raises(
        ScenarioError,
        match=r"trace.csv, line 4: arrival '4' is earlier than the session's previous turn; put the turns of a session"
        r" in order; correct it",
    ):
        read_trace(path)
    trace = read_trace(path, skip_bad_rows=True)
    assert trace.number.tolist() == [3, 2, 5]
    assert "1 of 4 rows left out, the first at line 4: arrival '4' is earlier" in notes(trace)


def test_bad_rows_alone_are_left_out_and_the_first_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, "0,10,1", "1,0,1", "x,5,1", "2,7,1")
    trace = read_trace(path, skip_bad_rows=True)
    assert trace.arrival.tolist() == [0, 2]
    assert trace.report is not None
    assert trace.report.left_out == 2
    assert trace.report.first_left_out.startswith("line 3: input_len '0' is not a whole number")
    assert "1 row of 0 tokens among those left out: requests that failed?" in notes(trace)


def test_what_was_left_out_stands_in_table_report_and_summary(tmp_path: Path) -> None:
    path = save(tmp_path, "0,100,10", "1,0,1", "3,50,5", "2,70,7")
    question = scenario(f"workload={{trace: {{file: {path}, skip_bad_rows: true}}}}", "cluster.gpu=h100-sxm-80gb")
    summary = summarize(simulate(question))
    assert summary["skipped_rows"] == summary["trace"]["left_out"] == 1
    assert summary["trace"]["rows"] == 4
    assert summary["trace"]["requests"] == summary["completed"] == 3
    assert summary["trace"]["format"] == "csv"
    assert summary["trace"]["sorted_rows"] == 1
    said = "1 of 4 rows left out, the first at line 3: input_len '0' is not a whole number"
    assert said in " ".join(summary["trace"]["notes"])
    assert said in " ".join(benchmark_table(summary).split())
    assert any(said in sentence for sentence in explanations(summary))
    assert json.loads(json.dumps(summary))["trace"] == summary["trace"]


def test_words_of_a_file_command_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    result = {"start_times": [1.0, 2.0], "input_lens": [5, 5], "output_lens": [1, 0], "errors": ["", "\x1b[31mred\x07"]}
    path.write_text(json.dumps(result))
    trace = read_trace(path)
    assert "?[31mred?" in notes(trace)
    assert notes(trace).isprintable()
    path.write_text(json.dumps(result | {"output_lens": [0, 0], "errors": ["\x1b[31m"] * 2}))
    with pytest.raises(ScenarioError, match=r"request 0: the request failed: \?\[31m"):
        read_trace(path)
    path.write_text('{"col\\u001bour": 1}\n')
    with pytest.raises(ScenarioError, match=r"the keys col\?our; known"):
        read_trace(path)


def test_without_a_trace_nothing_is_said_of_one() -> None:
    summary = summarize(simulate(scenario("workload.num_requests=5")))
    assert "trace" not in summary
    assert "Trace" not in benchmark_table(summary)


# Pace


@given(st.lists(st.floats(0.001, 20), min_size=3, max_size=40), st.floats(0.01, 500))
def test_another_rate_keeps_the_burstiness(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[float], rate: float
) -> None:
    times = np.cumsum(gaps)
    path = save(tmp_path_factory.mktemp("trace"), *(f"{time!r},1,1" for time in times.tolist()))
    plain, scaled = read_trace(path), read_trace(path, rate=rate)
    before, after = np.diff(plain.arrival), np.diff(scaled.arrival)
    assert 1 / after.mean() == pytest.approx(rate)
    assert after.std() / after.mean() == pytest.approx(before.std() / before.mean(), abs=1e-6)
    np.testing.assert_allclose(after * rate, before / before.mean(), rtol=1e-6)


def test_a_rate_needs_times_and_stands_alone(tmp_path: Path) -> None:
    path = save(tmp_path, "1,1,1", "1,2,1")
    with pytest.raises(ScenarioError, match="has no rate that could be scaled"):
        read_trace(path, rate=2)
    with pytest.raises(ScenarioError, match="rate and speedup both scale the gaps: state one"):
        scenario(f"workload={{trace: {{file: {path}, rate: 2, speedup: 3}}}}")
    with pytest.raises(ScenarioError, match=r"workload.trace.rate: arrivals beside the trace re-time it"):
        simulate(scenario(f"workload={{trace: {{file: {path}, rate: 2}}, arrivals: {{process: constant, rate: 1}}}}"))


# What looks odd


def odd(folder: Path, rows: list[str], header: str = HEADER) -> str:
    return notes(read_trace(save(folder, *rows, header=header)))


def test_milliseconds_read_as_seconds_are_doubted(tmp_path: Path) -> None:
    rows = [f"{137 * row + 11 * (row % 7)},{row + 5},{row % 9 + 1}" for row in range(50)]
    assert "if the times are milliseconds, state workload.trace.time_unit: ms." in odd(tmp_path, rows)
    fine = [f"{0.137 * row:.3f},{row + 5},{row % 9 + 1}" for row in range(50)]
    assert odd(tmp_path, fine) == ""
    assert "if the times are seconds" in odd(
        tmp_path, [f"{row * 1e-5:.6f},{row + 5},{row % 9 + 1}" for row in range(50)]
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([f"0,{row + 5},{row + 1}" for row in range(20)], "All requests arrive at the same time."),
        ([f"{row / 9},64,{row % 5 + 1}" for row in range(20)], "All prompts have 64 tokens."),
        ([f"{row / 9},{row + 7},1" for row in range(20)], "All answers have one token"),
        ([f"{row // 2 / 9},{row // 2 + 7},{row // 2 + 1}" for row in range(20)], "10 requests are exact repeats"),
        ([f"{row / 9},{row * 10**6 + 7},{row + 1}" for row in range(20)], "are these characters or bytes?"),
        ([f"{row / 9 + 900 * (row > 100)},{row + 7},{row + 1}" for row in range(200)], "several recordings in one?"),
        ([f"{row // 4 * 3},{row + 7},{row + 1}" for row in range(200)], "Times stand on a grid of 3 s"),
    ],
)
def test_what_looks_odd_is_said(tmp_path: Path, rows: list[str], said: str) -> None:
    assert said in odd(tmp_path, rows)


def test_one_client_is_noticed(tmp_path: Path) -> None:
    rows = [f"{row},{10 * row + 5},{row % 3 + 1},a" for row in range(20)]
    assert "One session, 'a', sends 100% of all requests." in odd(tmp_path, rows, header=f"{HEADER},session")
