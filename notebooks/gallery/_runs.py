"""What entries of the gallery share: a run of a scenario of theirs, and the kernels of one step."""

from collections.abc import Iterable, Sequence
from functools import cache

from simserve.cost.build import modelled_step_cost
from simserve.cost.operators import Kernel
from simserve.report.summary import Summary, summarize
from simserve.simulation import simulate
from simserve.spec import resources
from simserve.spec.load import load_scenario
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario


def scenario(name: str, overrides: Sequence[str] = ()) -> Scenario:
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


def kernels(
    name: str,
    overrides: Sequence[str] = (),
    *,
    chunks: Sequence[tuple[int, int]] = (),
    decodes: int = 0,
    context: int = 0,
) -> list[Kernel]:
    """Kernels of one step of `scenarios/gallery/NAME.yaml`: prompt chunks as (new tokens, tokens before), and decodes
    over `context` tokens of KV cache in all.
    """
    cost = modelled_step_cost(scenario(name, overrides))
    launches = cost.launches(chunks, decodes, context, len(chunks) + decodes)
    return [kernel for launch in launches for kernel in launch.kernels]


def share_bound_by(bound: str, of: Iterable[Kernel]) -> float:
    """Share of the time of some kernels in which `compute`, `memory`, `network` or `floor` binds them."""
    ticks = [(kernel.bound == bound, kernel.ticks) for kernel in of]
    return sum(time for is_bound, time in ticks if is_bound) / sum(time for _, time in ticks)
