"""What a scenario asked, in the few facts that reports need: load, fleet, price, objectives."""

from typing import NamedTuple

from simserve.spec.scenario import Scenario
from simserve.spec.slo import SloSpec
from simserve.spec.workload import AllAtOnce, ClosedLoop, Constant, Gamma, Poisson


class Load(NamedTuple):
    """The configured load in the words of `vllm bench serve`; "inf" stands for no limit, None for not applicable."""

    request_rate: float | str | None
    burstiness: float | str | None
    max_concurrency: int | None


def configured_load(scenario: Scenario) -> Load:
    """Rate, burstiness and concurrency that the scenario sets; a trace, a ramp and stages set no single rate."""
    match scenario.workload.arrivals:
        case Poisson(rate=rate) | Constant(rate=rate) | Gamma(rate=rate) as arrivals:
            return Load(rate, _burstiness(arrivals), None)
        case AllAtOnce():
            return Load("inf", None, None)
        case ClosedLoop(users=users):
            return Load("inf", None, users)
    return Load(None, None, None)


def _burstiness(arrivals: Poisson | Constant | Gamma) -> float | str:
    if isinstance(arrivals, Gamma):
        return arrivals.shape
    return 1.0 if isinstance(arrivals, Poisson) else "inf"


def price_per_gpu_hour(scenario: Scenario) -> float | None:
    """Dollars per GPU and hour: the cluster's, else the profile's, else None."""
    stated = scenario.cluster.price_per_gpu_hour
    return stated if stated is not None else scenario.cluster.gpu.price_per_hour


def objective_of(scenario: Scenario, class_index: int) -> SloSpec | None:
    """The objective of a request class: its own, else the scenario's."""
    classes = scenario.workload.classes
    own = classes[class_index].slo if class_index < len(classes) else None
    return own or scenario.slo
