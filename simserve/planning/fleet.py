"""The fewest replicas that hold a given load within the SLO."""

import math
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from simserve.planning.capacity import MEASURES, Capacity, Progress, collected, means, seeded
from simserve.planning.executor import results
from simserve.planning.load import Load
from simserve.planning.search import NoCrossingError, largest_load
from simserve.planning.trial import attempt
from simserve.spec.errors import ScenarioError
from simserve.spec.scenario import Scenario

LARGEST = 1000
"""Replicas of the largest fleet that is simulated."""
WIDER = 8
"""Steps of 10 % by which a fleet may exceed the replicas that its capacity asks for: about twice as many."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fewest replicas that hold a load in every seed, and what their tokens cost then."""

    target: float
    replicas: int
    num_gpus: int
    measures: Mapping[str, float]


def find_fleet(
    scenario: Scenario, target: float, capacity: Capacity, executor: Executor, progress: Progress = lambda _: None
) -> Fleet:
    """Fleet for a load of `target`, in the unit of the capacity, over the capacity's own seeds.

    Where the workload states `num_requests`, a larger fleet gets as many more, so that each replica's run stays as long
    as it was; a trace keeps its rows.

    Raises ScenarioError where even twice the replicas that the capacity asks for do not hold it, and for more than
    `LARGEST`.
    """
    likely = math.ceil(target / capacity.interval.mean * scenario.cluster.replicas)
    if likely > LARGEST:
        raise ScenarioError(
            f"{target:g} {capacity.load.unit} take about {likely:,} replicas: more than {LARGEST} replicas are not"
            " simulated, take the price from the capacity of one"
        )
    runs = seeded(scenario, len(capacity.seeds))
    needed = max(collected(results(executor, partial(seed_replicas, capacity, target), runs), progress))
    trials = results(executor, partial(_measures, capacity.load, target, needed), runs)
    measures = means([table for _, table in trials])
    return Fleet(target, needed, needed * scenario.cluster.gpus_per_replica, measures)


def seed_replicas(capacity: Capacity, target: float, scenario: Scenario) -> int:
    """Fewest replicas that hold the target in one seed. Runs in a worker."""
    own = next(one for one in capacity.seeds if one.seed == scenario.seed)
    start = math.ceil(target / own.holds * scenario.cluster.replicas)

    def fails(replicas: float) -> bool:
        return not attempt(_sized(scenario, capacity.load, target, int(replicas))).holds

    try:
        return int(largest_load(fails, start, precision=0, whole=True, factor=1.1, tries=WIDER).high)
    except NoCrossingError as error:
        if not error.meets:
            return 1
        raise ScenarioError(
            f"{target:g} {capacity.load.unit}: even {error.load:g} replicas do not hold it, where one group of"
            f" {scenario.cluster.replicas} holds {own.holds:.3g}; another cluster.router may spread the load better"
        ) from None


def _measures(load: Load, target: float, replicas: int, scenario: Scenario) -> dict[str, float | None]:
    summary = attempt(_sized(scenario, load, target, replicas)).summary
    return {name: summary[name] for name in MEASURES}


def _sized(scenario: Scenario, load: Load, target: float, replicas: int) -> Scenario:
    settings = [load.setting(target), f"cluster.replicas={replicas}"]
    if (requests := scenario.workload.num_requests) is not None:
        settings.append(f"workload.num_requests={math.ceil(requests * replicas / scenario.cluster.replicas)}")
    return scenario.with_overrides(settings)
