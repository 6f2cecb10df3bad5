"""Requests served: a handful by an engine whose steps all take 10 ms, for cases that are worked out by hand, and whole
scenarios of which nothing may be left over.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scenario_text import scenario

from simserve.simulation import Simulation, simulate
from simserve.spec.result import COMPLETED, REJECTED, UNFINISHED, Result
from simserve.spec.scenario import Scenario

NO_DOOR = "{front_end_per_request: 0, front_end_per_token: 0, delivery: 0}"
CONSTANT = f"cost={{constant_step: 10 ms, host: {NO_DOOR}}}"
OFFLINE = "workload.arrivals={process: all_at_once}"
SYNC, ASYNC = "engine.async_scheduling=false", "engine.async_scheduling=true"


def constant(*overrides: str) -> Scenario:
    """The toy question with steps of 10 ms and no front end."""
    return scenario(CONSTANT, "workload.input=10", *overrides)


def serve(rows: Sequence[tuple[float, int, int]], *overrides: str) -> Result:
    """Serve requests (arrival in milliseconds, input_len, output_len)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        lines = [f"{arrival / 1000:.9f},{input_len},{output_len}" for arrival, input_len, output_len in rows]
        path.write_text("\n".join(["arrival,input_len,output_len", *lines]))
        trace = f"workload={{trace: {{file: {path}, format: csv}}}}"
        return simulate(scenario(CONSTANT, trace, *overrides))


def milliseconds(result: Result, name: str) -> list[float]:
    """A column of times."""
    return [round(time * 1000, 9) for time in result.requests[name].tolist()]


def served_once(question: Scenario) -> Result:
    """Run a scenario without clients that give up, in which every request has one status, answers are whole, and an
    engine without requests has all its blocks.
    """
    simulation = Simulation(question)
    result = simulation.run()
    status, workload = result.requests["status"], simulation.workload
    assert np.isin(status, (COMPLETED, REJECTED, UNFINISHED)).all()
    done = status == COMPLETED
    whole = np.minimum(workload.output_len, question.engine.max_model_len - workload.input_len)
    np.testing.assert_array_equal(result.requests["output_len"][done], whole[done])
    for replica in simulation.replicas:
        if not replica.scheduler.has_requests:
            assert replica.scheduler.ledger.pool.num_free == replica.scheduler.ledger.pool.num_blocks
    return result
