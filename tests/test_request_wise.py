"""The scheduler that visits every request decides what the one does that keeps sums, and, with several plans in flight,
what vLLM decided in recorded runs.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from pipelined import PipelinedReplay
from random_scenarios import scenarios
from single_steps import single_steps

from simserve.cost import MemoryLedger
from simserve.engine.ledger import Fetch
from simserve.engine.request_wise import RequestWise
from simserve.simulation import scheduler_config, simulate
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario
from simserve.validation.recording import parse_workload

SYNCHRONOUS: dict[str, Any] = {"async_scheduling": False}


def explicitly(question: Scenario) -> Result:
    """The scenario, served by schedulers that visit every request."""

    def build(scenario: Scenario, ledger: MemoryLedger, fetch: Fetch | None = None) -> RequestWise:
        return RequestWise(scheduler_config(scenario, ledger.num_gpu_blocks), fetch=fetch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simserve.simulation.replicas.build_scheduler", build)
        return simulate(question)


@given(scenarios(engine=SYNCHRONOUS | {"scheduling_policy": "fcfs"}))
@settings(max_examples=100)
def test_decides_what_the_scheduler_decides(question: Scenario) -> None:
    explicit, implicit = explicitly(question), simulate(question)
    assert_same_requests(explicit, implicit)
    left, right = single_steps(explicit), single_steps(implicit)
    for name in right:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@given(scenarios(engine=SYNCHRONOUS | {"scheduling_policy": "priority"}, cost={"constant_step": 0.01, "host": {}}))
@settings(max_examples=50)
def test_decides_the_same_by_priority(question: Scenario) -> None:
    """By priority a decode may go without; counted as a chunk afterwards by one, and by the other as what it is."""
    assert_same_requests(explicitly(question), simulate(question))


def assert_same_requests(left: Result, right: Result) -> None:
    """Every column of requests, and every gap of more than a step."""
    for name in right.requests:
        np.testing.assert_array_equal(left.requests[name], right.requests[name], err_msg=name)
    np.testing.assert_array_equal(gaps(left), gaps(right))


def gaps(result: Result) -> NDArray[np.int64]:
    """Rows of (request, step before, step after) with a step between."""
    rows = np.array(list(result.gaps.values())).T
    longer: NDArray[np.int64] = rows[rows[:, 2] > rows[:, 1] + 1]
    return longer


TRACES = sorted((Path(__file__).parent / "pipeline_traces").glob("*.json.gz"))


@pytest.mark.plain_source
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_plans_in_flight_are_those_of_vllm(path: Path) -> None:
    """Every field of every step, with two to four plans in flight."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    replay = PipelinedReplay(parse_workload(trace["workload"]), trace["stages"])
    for recorded in trace["steps"]:
        assert replay.step() == recorded
        replay.scheduler.ledger.pool.check()
    assert replay.is_over


def test_all_recorded_traces_are_here() -> None:
    assert len(TRACES) == 12
