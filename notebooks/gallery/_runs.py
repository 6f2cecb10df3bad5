"""What entries of the gallery share: a run of a scenario of theirs."""

from collections.abc import Iterable
from functools import cache

from simserve.report.summary import Summary, summarize
from simserve.simulation import simulate
from simserve.spec import resources
from simserve.spec.load import load_scenario
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario


def scenario(name: str, overrides: Iterable[str] = ()) -> Scenario:
    """Scenario `scenarios/gallery/NAME.yaml`, with keys overridden as on the command line."""
    return load_scenario(resources.folder("scenarios") / "gallery" / f"{name}.yaml", overrides)


@cache
def run(name: str, *overrides: str) -> Result:
    """Records of a run of `scenarios/gallery/NAME.yaml`; the same run is made once."""
    return simulate(scenario(name, overrides))


@cache
def summary(name: str, *overrides: str) -> Summary:
    """Numbers of a run of `scenarios/gallery/NAME.yaml`, under the keys of `summary.json`."""
    return summarize(run(name, *overrides))
