"""Static batches: against their recursion, written down, and the laws that hold for every scheduler."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario
from served import milliseconds, serve
from test_skipping import assert_same, both_ways

from simserve.planning.bottleneck import find_bottleneck
from simserve.report.summary import summarize
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, REJECTED, TIMED_OUT
from simserve.spec.scenario import Scenario

STATIC: dict[str, object] = {
    "scheduler": "static",
    "async_scheduling": None,
    "scheduling_policy": "fcfs",
    "watermark": 0,
}
STEP = 10


class Row(NamedTuple):
    """A request: when it comes (ms), and how many tokens it gets."""

    arrival: int
    output_len: int


def batches(rows: list[Row], seats: int, timeout: int) -> list[tuple[int, list[Row]]]:
    """When each batch begins, and with whom: when the last is through, and it is full or its first member's time is up.

    Who comes until the step is decided is in it; the batch takes a step for all prompts, and one for each further
    token of its longest answer.
    """
    found, free, left = [], 0, sorted(rows)
    while left:
        full = left[seats - 1].arrival if len(left) >= seats else 1 << 60
        start = max(free, min(full, left[0].arrival + timeout))
        members = [row for row in left[:seats] if row.arrival <= start]
        found.append((start, members))
        free = start + STEP * max(row.output_len for row in members)
        left = left[len(members) :]
    return found


@given(
    st.lists(st.builds(Row, st.integers(0, 300), st.integers(1, 12)), min_size=1, max_size=15),
    st.integers(1, 5),
    st.sampled_from([0, 5, 30, 100, 1000]),
)
@settings(max_examples=100, deadline=None)
def test_batches_follow_their_recursion(rows: list[Row], seats: int, timeout: int) -> None:
    """Steps of 10 ms: the time of every first and of every last token."""
    expected = []
    for start, members in batches(rows, seats, timeout):
        end = start + STEP * max(row.output_len for row in members)
        expected += [(row.arrival, end if row.output_len == 1 else start + STEP, end) for row in members]
    result = serve(
        [(row.arrival, 10, row.output_len) for row in sorted(rows)],
        "engine.scheduler=static", f"engine.max_num_seqs={seats}", f"engine.static_batching.timeout={timeout} ms",
    )  # fmt: skip
    columns = [milliseconds(result, name) for name in ("arrival", "first_token", "finish")]
    assert sorted(zip(*columns, strict=True)) == sorted(expected)
    tokens = sum(row.output_len - 1 for row in rows)
    assert summarize(result)["n_itl"] == tokens


@given(scenarios(engine=STATIC))
@settings(max_examples=60)
def test_laws_hold_under_static_batches(question: Scenario) -> None:
    """Runs are steps; a batch ends together, nobody joins it, nobody is preempted, and every row is computed to the
    batch's end: the rows of decode steps are those of batches times the longest answer's further tokens."""
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    requests = runs.requests
    assert not requests["num_preemptions"].any()
    if question.run.max_time is not None:
        return
    assert np.all(np.isin(requests["status"], (COMPLETED, REJECTED)))
    done = requests["status"] == COMPLETED
    members: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(done):
        members.setdefault((requests["replica"][row], requests["last_step"][row]), []).append(row)
    assert all(len(rows) <= question.engine.max_num_active_seqs for rows in members.values())
    computed = sum(len(rows) * (requests["output_len"][rows].max() - 1) for rows in members.values())
    assert (runs.steps["decodes"] * runs.steps["steps"]).sum() == computed
    for replica, last in members:
        later = [rows for (where, end), rows in members.items() if where == replica and end > last]
        assert all(steps.requests["scheduled"][rows].min() >= requests["finish"][members[replica, last][0]] - 1
                   for rows in later)  # fmt: skip


def test_a_batch_is_no_larger_than_the_pool_can_hold_to_its_end() -> None:
    """Four seats, and 20 blocks of which each request may need 7: two rows a batch, though six prompts would fit. The
    last two fill no batch and wait for their timer."""
    result = serve(
        [(0, 40, 60)] * 4, "engine.scheduler=static", "engine.max_num_seqs=4", "engine.num_gpu_blocks=21",
        "engine.max_model_len=320", "engine.static_batching.timeout=1 s",
    )  # fmt: skip
    assert milliseconds(result, "finish") == [600, 600, 1600, 1600]


def test_rows_that_are_through_are_computed_on() -> None:
    """One answer of 100 tokens among seven of 10: most of what is multiplied is for nobody."""
    overrides = ("engine.scheduler=static", "engine.max_num_seqs=8", "engine.static_batching.timeout=1 s")
    result = serve([(0, 10, 100), *[(0, 10, 10)] * 7], *overrides)
    assert set(milliseconds(result, "finish")) == {1000}
    assert result.steps["decodes"].tolist()[-1] == 8
    assert (result.steps["decodes"] * result.steps["steps"]).sum() == 8 * 99
    assert result.meta["extensions"] == ["static batching"]


def test_who_waits_waits_for_the_batch_to_end() -> None:
    """Whatever the batch leaves free: that is what binds, and not blocks or seats."""
    question = scenario("engine.scheduler=static", "workload.arrivals.rate=20", "workload.num_requests=60")
    found = find_bottleneck(simulate(question), "ttft")
    assert found.resource == "batch"
    assert found.waiting["batch"] > 0.5


@pytest.mark.parametrize("patience", ["timeout: 6 s", "first_token_timeout: 2 s, timeout: 10 s"])
def test_clients_may_leave_but_their_rows_stay(patience: str) -> None:
    """A batch cannot be left: rows of clients who have gone are computed to the end, and answer nobody."""
    question = scenario(
        "engine.scheduler=static", "engine.max_num_seqs=8", "workload.arrivals.rate=2", "workload.num_requests=60",
        "workload.output={distribution: uniform, min: 1, max: 600}", f"workload.client={{{patience}, retries: 0}}",
    )  # fmt: skip
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    gone = runs.requests["status"] == TIMED_OUT
    assert np.all(gone | (runs.requests["status"] == COMPLETED))
    assert 5 < gone.sum() < 55
    useful = (runs.requests["output_len"] - 1)[~gone].sum()
    assert (runs.steps["decodes"] * runs.steps["steps"]).sum() > 1.5 * useful


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("engine.async_scheduling=true", r"engine\.async_scheduling: a static batch is decided step by step"),
        ("engine.scheduling_policy=priority", r"engine\.scheduling_policy: .*first come, first served"),
        ("engine.watermark=0.1", r"engine\.watermark: would be ignored"),
        ("engine.static_batching.timeout=-1", r"engine\.static_batching\.timeout"),
    ],
)
def test_what_contradicts_static_batches_is_refused(override: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        scenario("engine.scheduler=static", override)


def test_the_timer_of_another_scheduler_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"engine\.static_batching: would be ignored by scheduler: vllm_v1"):
        scenario("engine.static_batching={timeout: 100 ms}")
    assert simulate(scenario("engine.static_batching=null")).meta["extensions"] == []
