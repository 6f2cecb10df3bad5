"""What simserve predicts for a measured run, in the columns of its table; and what a roofline alone would say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simserve.cost import cost_level
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, Result
from simserve.spec.scenario import Scenario
from simserve.validation.measured import METRICS, STATISTICS, MeasuredRun
from simserve.validation.replay_benchmark import predicted_latencies, replayed
from simserve.validation.roofline import roofline_tpot
from simserve.validation.scenario_of_row import NotModelledError, RowScenario, scenario_of_row

if TYPE_CHECKING:
    from simserve.report.evidence import Deployment

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Values by column for one row. `reason`: why there are none. `roofline`: TPOT of bytes over nominal bandwidth."""

    run: MeasuredRun
    values: Mapping[str, float]
    assumed: tuple[str, ...] = ()
    hits: bool = False
    roofline: float | None = None
    front_end: float | None = None
    """Seconds that the front end took per request; None where the clock is the engine's."""
    reason: str = ""
    deployment: "Deployment | None" = None
    concurrency: int = 0
    """Most requests that were under way in one second on a replica, simulated."""


def predict(run: MeasuredRun, host: Mapping[str, float] | None = None) -> Prediction:
    """Simulate a row; `host` outweighs the CPU times of its engine version."""
    from simserve.report.evidence import deployment_of

    try:
        row = scenario_of_row(run, host=host)
        values, most = _replayed_values(row) if row.recording else _simulated_values(row.scenario)
    except (NotModelledError, ScenarioError) as reason:
        return Prediction(run, {}, reason=str(reason))
    roofline = None if row.recording else roofline_tpot(row.scenario) * 1e3
    front_end = None if row.recording else row.scenario.cost.host.front_end_per_request
    own = deployment_of(row.scenario, cost_level(row.scenario))
    return Prediction(run, values, row.assumed, row.hits, roofline, front_end, deployment=own, concurrency=most)


def _simulated_values(scenario: Scenario) -> tuple[dict[str, float], int]:
    result = simulate(scenario)
    return predicted_values(result), _concurrency(result)


def _concurrency(result: Result) -> int:
    from simserve.report.evidence import per_replica
    from simserve.report.window import Window, peak_concurrency

    window = Window.of(result)
    return per_replica(result, peak_concurrency(result.requests, window.measured, window.start))


def _replayed_values(row: RowScenario) -> tuple[dict[str, float], int]:
    assert row.recording is not None
    with replayed(row.scenario, row.recording) as scenario:
        result = simulate(scenario)
    return predicted_values(result, row.recording.clock), _concurrency(result)


def predicted_values(result: Result, clock: str = "client") -> dict[str, float]:
    """Statistics of the requests that count, by column of the table of measured runs."""
    from simserve.report.window import Window

    window = Window.of(result)
    chosen = window.measured & (result.requests["status"] == COMPLETED)
    values: dict[str, float] = {}
    for name, samples in predicted_latencies(result, clock).items():
        values |= _statistics(name, samples[chosen])
    requests = result.requests
    inputs, outputs = (int(requests[name][chosen].sum()) for name in ("input_len", "output_len"))
    counts = {"req_tput_rps": int(chosen.sum()), "output_tput_tok_s": outputs, "total_tput_tok_s": inputs + outputs}
    if window.duration > 0:
        values |= {name: count / window.duration for name, count in counts.items()}
    return {name: value for name, value in values.items() if name in METRICS}


def _statistics(name: str, samples: FloatArray) -> dict[str, float]:
    samples = samples[~np.isnan(samples)]
    if samples.size == 0:
        return {}
    points = [float(statistic[1:]) for statistic in STATISTICS[1:]]
    values = [float(samples.mean()), *np.percentile(samples, points).tolist()]
    return {f"{name}_{statistic}_ms": value * 1e3 for statistic, value in zip(STATISTICS, values, strict=True)}
