"""The largest load that a fleet holds within its SLO.

Each seed is an independent replication of the whole search, under common random numbers: within one seed the arrivals
are only scaled in time. The capacity is the geometric mean over the seeds, with Student's t for its 95 % interval; each
seed's own is found to 2 %.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TypeVar

from simserve.planning.bottleneck import Bottleneck, find_bottleneck
from simserve.planning.executor import results
from simserve.planning.load import Load, load_of
from simserve.planning.search import NoCrossingError, largest_load
from simserve.planning.statistics import Interval, geometric_interval
from simserve.planning.trial import Tightest, Trial, attempt, describe
from simserve.spec.errors import ScenarioError
from simserve.spec.scenario import Scenario

PRECISION = 0.02
"""The search ends when the load that fails is at most this share above the one that holds."""
LEAST_SHARE = 1e-3
"""Loads below this share of the scenario's own are not tried: requests are alone long before."""
MEASURES = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "slo_attainment",
    "price_per_gpu_hour",
    "cost_per_million_output_tokens",
    "cost_per_million_tokens",
)
"""Keys of the summary that describe the run at capacity."""

T = TypeVar("T")
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SeedCapacity:
    """What one seed found: the load that holds, the next that does not, the condition that fails there, and what
    binds at the load that holds."""

    seed: int
    holds: float
    fails: float
    binding: Tightest
    bottleneck: Bottleneck
    measures: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer over all seeds, loads in the unit of `load`, shares and throughputs as means."""

    load: Load
    interval: Interval
    binding: Tightest
    bottleneck: Bottleneck
    measures: Mapping[str, float]
    seeds: Sequence[SeedCapacity]


def find_capacity(scenario: Scenario, seeds: int, executor: Executor, progress: Progress = lambda _: None) -> Capacity:
    """Capacity over that many seeds, from the scenario's own on; over one where seeds change nothing.

    `progress` hears how many seeds are done.

    Raises ScenarioError without an SLO, for a workload that has no load to turn (see `load_of`), where even the
    smallest load fails, and where the run is too short to fail under any.
    """
    if scenario.slo is None and not any(one.slo for one in scenario.workload.classes):
        raise ScenarioError("slo: capacity is the largest load within an SLO; add one, e.g. slo='{ttft: 500 ms}'")
    load = load_of(scenario)
    runs = seeded(scenario, seeds if load.seeded else 1)
    found = collected(results(executor, partial(seed_capacity, load), runs), progress)
    return _over_seeds(load, found)


def seed_capacity(load: Load, scenario: Scenario) -> SeedCapacity:
    """Capacity of one seed. Runs in a worker."""
    failed: dict[float, Tightest] = {}
    held: list[Trial] = []

    def holds(value: float) -> bool:
        if value < load.base * LEAST_SHARE and failed:
            raise NoCrossingError(False, min(failed))
        trial = attempt(scenario.with_overrides([load.setting(value)]))
        if trial.holds:
            held[:] = [trial]
        else:
            failed[value] = trial.tightest
        return trial.holds

    try:
        low, high = largest_load(holds, load.base, precision=PRECISION, whole=load.whole)
    except NoCrossingError as error:
        raise ScenarioError(_no_capacity(load, error, failed)) from None
    last, binding = held[0], failed[high]
    measures = {name: last.summary[name] for name in MEASURES}
    return SeedCapacity(scenario.seed, low, high, binding, find_bottleneck(last.result, binding.condition), measures)


def _no_capacity(load: Load, error: NoCrossingError, failed: Mapping[float, Tightest]) -> str:
    if error.meets:
        return (
            f"{load.key}: the SLO holds even at {error.load:g} {load.unit}: the run ends before a queue can build up;"
            " give it more requests"
        )
    limit = failed[error.load]
    return f"slo: missed at any load: {describe(limit)} already at {error.load:.3g} {load.unit}"


def _over_seeds(load: Load, seeds: Sequence[SeedCapacity]) -> Capacity:
    """Means over the seeds. What binds is what binds in most of them; between parts of the step time, the means say."""
    condition = _most([one.binding.condition for one in seeds])
    resource = _most([one.bottleneck.resource for one in seeds])
    step_time = means([one.bottleneck.step_time for one in seeds])
    if resource in step_time:
        resource = max(step_time, key=lambda name: step_time[name])
    return Capacity(
        load=load,
        interval=geometric_interval([one.holds for one in seeds]),
        binding=next(one.binding for one in seeds if one.binding.condition == condition),
        bottleneck=Bottleneck(resource, means([one.bottleneck.waiting for one in seeds]), step_time),
        measures=means([one.measures for one in seeds]),
        seeds=seeds,
    )


def _most(values: Sequence[str]) -> str:
    return Counter(values).most_common(1)[0][0]


def means(tables: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """Mean of each number over the tables; one that some table lacks counts as 0 there, None everywhere is left out."""
    names = dict.fromkeys(name for table in tables for name, value in table.items() if value is not None)
    return {name: fmean(table.get(name) or 0.0 for table in tables) for name in names}


def seeded(scenario: Scenario, seeds: int) -> list[Scenario]:
    """The scenario with seeds counted from its own."""
    return [scenario.with_overrides([f"seed={scenario.seed + index}"]) for index in range(seeds)]


def collected(stream: Iterable[tuple[Scenario, T]], progress: Progress) -> list[T]:
    """Results in the order of their seeds."""
    found: dict[int, T] = {}
    for scenario, result in stream:
        found[scenario.seed] = result
        progress(len(found))
    return [found[seed] for seed in sorted(found)]
