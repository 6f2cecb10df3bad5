"""One run: from a scenario to its records."""

from collections.abc import Callable

from simserve.simulation.replicas import scheduler_config
from simserve.simulation.simulation import Simulation
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario

__all__ = ["Simulation", "build_simulation", "scheduler_config", "simulate"]


def simulate(scenario: Scenario, progress: Callable[[float], None] | None = None) -> Result:
    """Run a scenario to its end, or to `run.max_time`; `progress` is told the share that is done, 0 to 1.

    The same scenario gives the same result, bit for bit, in any process.

    Raises:
        ScenarioError: the deployment cannot exist, or a trace cannot be read.
    """
    return build_simulation(scenario).run(progress)


def build_simulation(scenario: Scenario) -> Simulation:
    """Fleet, clients and clock of a scenario.

    Raises:
        ScenarioError: as `simulate`.
    """
    return Simulation(scenario)
