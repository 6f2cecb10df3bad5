"""Chats, drawn and recorded: what each prompt is made of, when a chat ends, who waits for whom."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_text import scenario

from simserve.spec.errors import ScenarioError
from simserve.spec.ticks import to_ticks
from simserve.workload.workload import Workload, build_workload

CHAT = (
    "workload.input={distribution: uniform, min: 1, max: 100}",
    "workload.output={distribution: uniform, min: 1, max: 50}",
    "workload.sessions={turns: {distribution: uniform, min: 1, max: 12}, think_time: 5 s}",
)


def build(*overrides: str) -> Workload:
    return build_workload(scenario(*overrides))


def assert_chats(workload: Workload) -> None:
    """Rows of a session follow each other, turns count up, and each prompt holds the previous prompt and answer."""
    rows = np.arange(len(workload))
    later = workload.turn > 0
    np.testing.assert_array_equal(workload.parent, np.where(later, rows - 1, -1))
    np.testing.assert_array_equal(workload.session[later], workload.session[rows[later] - 1])
    np.testing.assert_array_equal(workload.turn[later], workload.turn[rows[later] - 1] + 1)
    assert np.all(np.diff(workload.session) >= 0)
    added = workload.input_len.copy()
    added[later] -= (workload.input_len + workload.output_len)[rows[later] - 1]
    assert np.all(added >= 1)


def test_515_a_prompt_is_the_previous_prompt_its_answer_and_the_new_turn() -> None:
    """inference-sim#515, #516, #517."""
    workload = build(
        "workload.input=100", "workload.output=20", "workload.sessions={turns: 4}", "workload.num_requests=8"
    )
    np.testing.assert_array_equal(workload.input_len, [100, 220, 340, 460] * 2)
    np.testing.assert_array_equal(workload.session, [0] * 4 + [1] * 4)
    np.testing.assert_array_equal(workload.turn, [0, 1, 2, 3] * 2)
    np.testing.assert_array_equal(workload.parent, [-1, 0, 1, 2, -1, 4, 5, 6])


@given(st.integers(0, 1000), st.integers(1, 200), st.integers(151, 2000))
def test_chats_are_made_of_their_turns_and_fit_into_the_model(seed: int, count: int, max_model_len: int) -> None:
    workload = build(*CHAT, f"seed={seed}", f"workload.num_requests={count}", f"engine.max_model_len={max_model_len}")
    assert len(workload) == count
    assert_chats(workload)
    assert np.all(workload.input_len + workload.output_len <= max_model_len)
    assert np.all(workload.turn < 12)


def test_first_turns_arrive_and_later_ones_think() -> None:
    workload = build(*CHAT)
    first = workload.turn == 0
    np.testing.assert_array_equal(workload.arrival >= 0, first)
    assert np.all(np.diff(workload.arrival[first]) >= 0)
    np.testing.assert_array_equal(workload.think, np.where(first, 0, to_ticks(5)))


def test_the_first_prompt_may_be_of_another_length() -> None:
    workload = build(*CHAT, "workload.sessions.first_input=1000")
    assert_chats(workload)
    np.testing.assert_array_equal(workload.input_len[workload.turn == 0], 1000)


def test_a_chat_ends_at_the_turn_that_does_not_fit_and_is_counted() -> None:
    chat = ("workload.input=100", "workload.output=20", "workload.sessions={turns: 4}")
    whole = build(*chat, "engine.max_model_len=480", "workload.num_requests=8")
    assert (whole.shortened_sessions, whole.turn.max()) == (0, 3)
    shortened = build(*chat, "engine.max_model_len=479", "workload.num_requests=9")
    np.testing.assert_array_equal(shortened.turn, [0, 1, 2] * 3)
    assert shortened.shortened_sessions == 2  # the third ends because nine requests are enough


def test_a_chat_whose_first_turn_does_not_fit_is_counted_and_leaves_a_gap() -> None:
    workload = build(
        "workload.input={distribution: empirical, values: [100, 1000]}",
        "workload.sessions={turns: 1}",
        "engine.max_model_len=500",
        "workload.num_requests=200",
    )
    assert set(workload.input_len.tolist()) == {100}
    assert workload.shortened_sessions == workload.session[-1] + 1 - 200 > 0


def test_chats_that_never_fit_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"only 0 turns of \d+ chats fit into engine.max_model_len = 500"):
        build("workload.sessions={turns: 3}", "engine.max_model_len=500")


def test_a_duration_bounds_the_first_turns_and_lets_every_chat_end() -> None:
    base = (*CHAT, "workload.num_requests=null", "workload.duration=60 s", "workload.sessions.turns=3")
    workload = build(*base)
    assert_chats(workload)
    assert workload.arrival.max() <= to_ticks(60)
    np.testing.assert_array_equal(np.bincount(workload.session), 3)


def test_more_requests_change_no_earlier_one() -> None:
    few, many = build(*CHAT, "workload.num_requests=50"), build(*CHAT, "workload.num_requests=5000")
    for name in ("arrival", "input_len", "output_len", "session", "turn", "parent"):
        np.testing.assert_array_equal(getattr(many, name)[:50], getattr(few, name))


def test_longer_answers_change_neither_arrivals_nor_what_users_type() -> None:
    long = build(*CHAT, "workload.output=500")
    short = build(*CHAT)
    np.testing.assert_array_equal(long.arrival, short.arrival)
    np.testing.assert_array_equal(long.session, short.session)
    np.testing.assert_array_equal(long.input_len[long.turn == 0], short.input_len[short.turn == 0])


def test_a_chat_keeps_its_class() -> None:
    workload = build(*CHAT, "workload.classes=[{name: a, share: 0.5}, {name: b, share: 0.5, priority: 3, input: 7}]")
    later = workload.turn > 0
    np.testing.assert_array_equal(workload.class_index[later], workload.class_index[workload.parent[later]])
    np.testing.assert_array_equal(workload.priority, 3 * workload.class_index)
    np.testing.assert_array_equal(workload.input_len[(workload.class_index == 1) & ~later], 7)


# Recorded chats

TRACE = """arrival,input_len,output_len,session,think
0,10,5,x,
1,20,5,y,
2,30,5,,
3,17,5,x,{think}
4,30,5,y,{think}
5,30,5,x,{think}
"""


def replay(folder: Path, text: str, *overrides: str) -> Workload:
    path = folder / "trace.csv"
    path.write_text(text)
    trace = f"workload={{trace: {{file: {path}, format: csv}}}}"
    return build(trace, *overrides)


def test_recorded_turns_with_times_come_at_their_times_and_know_their_parents(tmp_path: Path) -> None:
    workload = replay(tmp_path, TRACE.format(think=""))
    np.testing.assert_array_equal(workload.arrival, [to_ticks(t) for t in range(6)])
    np.testing.assert_array_equal(workload.session, [0, 1, -1, 0, 1, 0])
    np.testing.assert_array_equal(workload.turn, [0, 0, 0, 1, 1, 2])
    np.testing.assert_array_equal(workload.parent, [-1, -1, -1, 0, 1, 3])


def test_recorded_turns_with_a_think_time_wait_right_behind_their_parents(tmp_path: Path) -> None:
    workload = replay(tmp_path, TRACE.format(think="0.5"), "workload.trace.speedup=2")
    np.testing.assert_array_equal(workload.arrival, [0, -1, -1, to_ticks(0.5), -1, to_ticks(1)])
    np.testing.assert_array_equal(workload.input_len, [10, 17, 30, 20, 30, 30])
    np.testing.assert_array_equal(workload.think, [0, to_ticks(0.25), to_ticks(0.25), 0, to_ticks(0.25), 0])
    np.testing.assert_array_equal(workload.parent, [-1, 0, 1, -1, 3, -1])
    np.testing.assert_array_equal(workload.session, [0, 0, 0, 1, 1, -1])


def test_a_recorded_turn_shorter_than_what_came_before_is_refused(tmp_path: Path) -> None:
    text = TRACE.format(think="").replace("3,17", "3,14")
    with pytest.raises(
        ScenarioError, match=r"line 5: input_len '14' is less than the prompt and answer of the session's"
    ):
        replay(tmp_path, text)
    workload = replay(tmp_path, text, "workload.trace.skip_bad_rows=true")
    np.testing.assert_array_equal(workload.turn, [0, 0, 0, 1, 1])
    assert workload.skipped_rows == 1


def test_only_a_later_turn_may_do_without_a_time(tmp_path: Path) -> None:
    without = TRACE.format(think="1").replace("3,17", ",17")
    np.testing.assert_array_equal(replay(tmp_path, without).parent, [-1, 0, 1, -1, 3, -1])
    with pytest.raises(ScenarioError, match="line 4: arrival is missing"):
        replay(tmp_path, without.replace("2,30,5,,", ",30,5,,1"))
    with pytest.raises(ScenarioError, match=r"line 5: think '-1' is not a time in seconds >= 0"):
        replay(tmp_path, TRACE.replace("{think}", "-1"))


def test_recorded_chats_have_users_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="a trace with sessions has its own users"):
        replay(tmp_path, TRACE.format(think=""), "workload.arrivals={process: closed_loop, users: 2}")
