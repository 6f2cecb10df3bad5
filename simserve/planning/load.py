"""What "more load" means for a workload: the key of the scenario that a capacity search turns, and its unit.

Open arrivals are turned by their rate, a trace by its speed-up, a closed loop by its number of users. The random
streams stay the same, so that a higher rate is the same sequence of requests closer together.
"""

from dataclasses import dataclass

from simserve.spec.errors import ScenarioError
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds
from simserve.spec.workload import ClosedLoop, Constant, Gamma, Poisson, TraceSpec
from simserve.workload.workload import build_workload


@dataclass(frozen=True, slots=True)
class Load:
    """A key of the scenario and the load it stands for: `value of key = load * scale`."""

    key: str
    unit: str
    base: float
    """Load of the scenario as it is written."""
    scale: float = 1.0
    whole: bool = False
    seeded: bool = True
    """Whether seeds change anything: a trace that is replayed leaves nothing to draw."""

    def setting(self, load: float) -> str:
        """Override that sets this load."""
        return f"{self.key}={int(load)}" if self.whole else f"{self.key}={load * self.scale!r}"


def load_of(scenario: Scenario) -> Load:
    """How the load of this scenario is turned.

    Raises ScenarioError where it has no single knob: ramp, piecewise and all_at_once arrivals.
    """
    workload = scenario.workload
    match workload.arrivals:
        case None if workload.trace is not None:
            return _trace_load(scenario, workload.trace)
        case ClosedLoop(users=users):
            return Load("workload.arrivals.users", "users", users, whole=True)
        case Poisson(rate=rate) | Gamma(rate=rate) | Constant(rate=rate):
            return Load("workload.arrivals.rate", "sessions/s" if workload.sessions else "requests/s", rate)
    process = workload.arrivals.process if workload.arrivals else None
    raise ScenarioError(
        f"workload.arrivals.process: capacity is a load that can be held, which {process} arrivals are not;"
        " use poisson, gamma, constant, closed_loop or a trace"
    )


def _trace_load(scenario: Scenario, trace: TraceSpec) -> Load:
    """Rate of a trace: requests after the first over the time they took."""
    workload = build_workload(scenario)
    arrival = workload.arrival
    opening = arrival[arrival >= 0]
    span = to_seconds(int(opening.max() - opening.min())) if len(opening) else 0.0
    if span <= 0:
        raise ScenarioError("workload.trace: all its requests arrive at once, so that it has no rate to speed up")
    rate = (len(opening) - 1) / span
    is_drawn = workload.trace_report is not None and workload.trace_report.format == "servegen"
    seeded = is_drawn or scenario.cluster.router == "random"
    key, set_to = ("speedup", trace.speedup) if trace.rate is None else ("rate", trace.rate)
    return Load(f"workload.trace.{key}", "requests/s", rate, scale=set_to / rate, seeded=seeded)
