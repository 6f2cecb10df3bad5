"""`simserve validate live`: real runs and simulated ones of the same workload side by side, at several loads."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calibration.engine.runner import ModelRunner
from calibration.fit import NOISY
from calibration.live import LiveRun, replay, serve, step_bias
from simserve.report.metrics import METRICS
from simserve.report.sample import Sample
from simserve.report.statistics import PERCENTILES
from simserve.simulation import simulate
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario
from simserve.workload.workload import build_workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARED = ("ttft", "tpot", "e2el")
STATISTICS = ("p50", "p95", "mean")
LIGHT = 0.6
"""Up to this load the tighter bounds hold."""
BIAS_BOUND = 0.05
ALL_AT_ONCE = "workload.arrivals={process: all_at_once}"
Progress = Callable[[float], None]


class Line(NamedTuple):
    """One statistic: seconds measured (median of the repetitions) and simulated, the error, and its bound.

    `spread` is how far the repetitions lie apart: (greatest - least) / median.
    """

    metric: str
    statistic: str
    real: float
    simulated: float
    error: float
    spread: float
    bound: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One load: its lines, the bias of step times in each repetition, and the records of both sides.

    `real` is the repetition in the middle, by mean end-to-end latency.
    """

    load: float
    rate: float
    lines: list[Line]
    biases: list[float]
    real: Result
    simulated: Result
    calibration_noise: float = 0.0
    """Noise floor of the profile: one that was taken on a noisy machine proves nothing about another hour."""

    @property
    def verdict(self) -> str:
        """`passed`, `failed`, or `noisy` where the real engine's own runs lie further apart than a bound, or where the
        calibration itself was noisy.

        A noisy comparison decides nothing.
        """
        if self.calibration_noise > NOISY or any(line.spread > line.bound for line in self.lines):
            return "noisy"
        missed = any(abs(line.error) > line.bound for line in self.lines)
        return "failed" if missed or abs(statistics.median(self.biases)) > BIAS_BOUND else "passed"


def at_load(scenario: Scenario, load: float, capacity: float) -> Scenario:
    """The scenario with Poisson arrivals at a share of what the engine can serve; chats arrive by their first turns."""
    offline = build_workload(scenario.with_overrides([ALL_AT_ONCE]))
    rate = load * capacity * float(np.mean(offline.arrival >= 0))
    return scenario.with_overrides([f"workload.arrivals={{process: poisson, rate: {rate:.6g}}}", "run.warmup=0 s"])


def capacity_of(scenario: Scenario) -> float:
    """Requests per second when there is always one waiting, as simulated."""
    result = simulate(scenario.with_overrides([ALL_AT_ONCE]))
    return len(result.requests["finish"]) / float(np.nanmax(result.requests["finish"]))


def compare(
    runner: ModelRunner, scenario: Scenario, loads: Sequence[float], *, repetitions: int, progress: Progress
) -> list[Comparison]:
    """Run the workload at each load for real, several times over, and simulate it.

    Repetitions are taken round by round over the loads: what disturbs the machine for a while disturbs one of each,
    and shows as their spread.
    """
    capacity = capacity_of(scenario)
    scenarios = [at_load(scenario, load, capacity) for load in loads]
    runs: list[list[LiveRun]] = [[] for _ in loads]
    total = repetitions * len(loads)
    for number in range(total):
        index = number % len(loads)
        runs[index].append(serve(runner, scenarios[index], _share(progress, number, total)))
    return [
        _comparison(load, load * capacity, each, of_load)
        for load, each, of_load in zip(loads, scenarios, runs, strict=True)
    ]


def _share(progress: Progress, number: int, total: int) -> Progress:
    return lambda done: progress((number + done) / total)


def _comparison(load: float, rate: float, scenario: Scenario, runs: Sequence[LiveRun]) -> Comparison:
    results = [replay(scenario, run) for run in runs]
    simulated = simulate(scenario)
    lines = [_line(metric, statistic, results, simulated, load) for metric in COMPARED for statistic in STATISTICS]
    biases = [step_bias(scenario, run) for run in runs]
    spec = scenario.cluster.gpu.calibrated
    noise = spec.quality.noise_floor if spec else 0.0
    by_latency = sorted(results, key=lambda result: _value(result, "e2el", "mean"))
    return Comparison(load, rate, lines, biases, by_latency[len(results) // 2], simulated, noise)


def _line(metric: str, statistic: str, results: Sequence[Result], simulated: Result, load: float) -> Line:
    values = [_value(result, metric, statistic) for result in results]
    real, predicted = statistics.median(values), _value(simulated, metric, statistic)
    spread = (max(values) - min(values)) / real
    bound = 0.20 if load > LIGHT else 0.15 if statistic == "p95" else 0.10
    return Line(metric, statistic, real, predicted, predicted / real - 1, spread, bound)


def _value(result: Result, metric: str, statistic: str) -> float:
    found = _sample(result, metric).statistics(PERCENTILES)
    assert found is not None, f"no request has a {metric}"
    return found.mean if statistic == "mean" else found.percentiles[int(statistic[1:])]


def _sample(result: Result, metric: str) -> Sample:
    return METRICS[metric].sample(result, np.ones(len(result.requests["status"]), np.bool_))


def save(comparisons: Sequence[Comparison], folder: Path, force: bool) -> None:
    """Both sides of each load as run folders, the lines as JSON, and the picture.

    Raises:
        FileExistsError: a run is there, and `force` is not set.
    """
    from simserve.report.run_folder import check_free
    from simserve.report.write_run import write_run

    sides = [(each, side) for each in comparisons for side in ("real", "simulated")]
    places = [folder / f"load-{each.load:g}" / side for each, side in sides]
    for place in places:
        check_free(place, force)
    for (each, side), place in zip(sides, places, strict=True):
        write_run(getattr(each, side), place, force)
    (folder / "comparison.json").write_text(json.dumps([_facts(each) for each in comparisons], indent=2) + "\n")
    live_plot(comparisons).savefig(folder / "live.png", dpi=150)


def _facts(each: Comparison) -> dict[str, Any]:
    lines = [line._asdict() for line in each.lines]
    return {"load": each.load, "rate": each.rate, "verdict": each.verdict, "step_bias": each.biases, "lines": lines}


def live_plot(comparisons: Sequence[Comparison]) -> "Figure":
    """Distributions of the latencies, measured and simulated over each other: a row for each load."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9.6, 2.6 * len(comparisons)), layout="constrained")
    grid = drawn.subplots(len(comparisons), len(COMPARED), squeeze=False)
    for row, each in zip(grid, comparisons, strict=True):
        for axes, metric in zip(row, COMPARED, strict=True):
            for side, look in (("real", "-"), ("simulated", "--")):
                curve = _sample(getattr(each, side), metric).distribution()
                assert curve is not None, f"no request has a {metric}"
                axes.plot(curve[0] * METRICS[metric].unit.factor, curve[1], look, label=side)
            axes.set(xlabel=METRICS[metric].axis, title=f"load {each.load:.0%}", ylim=(0, 1.02))
            axes.grid(alpha=0.3)
    grid[0][0].legend(loc="lower right")
    return drawn
