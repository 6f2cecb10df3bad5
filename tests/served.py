"""A handful of requests served by an engine whose steps all take 10 ms, for cases that are worked out by hand."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from scenario_text import scenario

from simserve.simulation import simulate
from simserve.spec.result import Result
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
