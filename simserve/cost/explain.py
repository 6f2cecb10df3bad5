"""One step laid open: its operators with bytes, FLOPs and time, and what binds each (`simserve step`)."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from simserve.cost.build import build_step_cost
from simserve.cost.launch import GraphMode
from simserve.cost.modelled import ModelledStepCost
from simserve.cost.operators import Kernel
from simserve.cost.pipeline import PipelineCost
from simserve.cost.speculation import SpeculativeCost
from simserve.cost.step import StepCost
from simserve.spec.ticks import to_seconds

if TYPE_CHECKING:
    from simserve.spec.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Operator:
    """All kernels of one name in a step. `bytes`, `flops` and `time` (seconds) are totals over its `count` kernels.

    `bound` is what the time of a kernel comes from: `memory`, `compute`, `floor` (the shortest a kernel takes) or
    `network`.
    """

    name: str
    count: int
    bytes: float
    flops: float
    time: float
    bound: str


def operators_of_step(
    scenario: "Scenario", chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
) -> list[Operator]:
    """Operators of one step in the order of their first kernel; none where `cost.constant_step` rules.

    Arguments as `StepCost.step`.

    Raises:
        ScenarioError: as `build_step_cost`.
    """
    counted: dict[str, list[Kernel]] = {}
    for kernel in _kernels(build_step_cost(scenario), chunks, num_decodes, context, num_sampled):
        counted.setdefault(kernel.name, []).append(kernel)
    return [
        Operator(
            name,
            len(kernels),
            sum(kernel.bytes for kernel in kernels),
            sum(kernel.flops for kernel in kernels),
            to_seconds(sum(kernel.ticks for kernel in kernels)),
            kernels[0].bound,
        )
        for name, kernels in counted.items()
    ]


def _kernels(
    cost: StepCost, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
) -> Iterator[Kernel]:
    """Kernels of a step; where drafts are verified, of one in which every decode verifies all of its."""
    if isinstance(cost, SpeculativeCost):
        yield from cost.kernels([*cost.verifications(num_decodes, context), *chunks], num_decodes)
    for part in _modelled_parts(cost):
        for launch in part.launches(chunks, num_decodes, context, num_sampled):
            yield from launch.kernels


def _modelled_parts(cost: StepCost) -> list[ModelledStepCost]:
    """The costs that are sums of operators: that of the replica, or of each stage of its pipeline."""
    stages = cost.stages if isinstance(cost, PipelineCost) else (cost,)
    return [stage for stage in stages if isinstance(stage, ModelledStepCost)]


def explain_step(
    scenario: "Scenario", chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
) -> dict[str, object]:
    """One step as `simserve step --json` prints it; arguments as `StepCost.step`, times in seconds.

    `time` is the step's latency on an idle GPU; `padded_tokens` the rows that GEMMs run on; `graph` the CUDA graph
    mode: full, piecewise or none. Under speculation every decode verifies all its drafts, and the drafter follows.

    Raises:
        ScenarioError: as `build_step_cost`.
    """
    cost = build_step_cost(scenario)
    operators = operators_of_step(scenario, chunks, num_decodes, context, num_sampled)
    if isinstance(cost, SpeculativeCost):
        chunks = [*cost.verifications(num_decodes, context), *chunks]
        tokens = sum(new for new, _ in chunks)
        mode, rows = cost.graph_of(chunks, num_decodes)
    else:
        tokens = num_decodes + sum(new for new, _ in chunks)
        parts = _modelled_parts(cost)
        mode, rows = parts[0].graph_of(chunks, num_decodes) if parts else (GraphMode.NONE, tokens)
    step = cost.step(chunks, num_decodes, context, num_sampled)
    return {
        "time": to_seconds(step.latency),
        "gpu_time": to_seconds(step.gpu),
        "cpu_time": to_seconds(step.cpu),
        "tokens": tokens,
        "padded_tokens": rows,
        "graph": mode.value,
        "operators": [asdict(operator) for operator in operators],
    }
