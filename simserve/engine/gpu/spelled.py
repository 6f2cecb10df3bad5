"""A step as a CPU issues it: host work, launches with their kernels, host work again."""

from collections.abc import Sequence
from typing import NamedTuple

from simserve.cost.kernels import StepLaunch
from simserve.cost.launch import GraphMode
from simserve.cost.modelled import ModelledStepCost
from simserve.cost.operators import Kernel
from simserve.cost.step import StepCost


class SpelledStep(NamedTuple):
    """CPU ticks before the launches, the launches, CPU ticks after them; tokens of the CUDA graph, 0 without one."""

    before: int
    launches: list[StepLaunch]
    after: int
    padded: int


def spell_out(
    cost: StepCost, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
) -> SpelledStep:
    """A step launch by launch; arguments as `StepCost.step`. A cost that knows no kernels is one kernel."""
    if not isinstance(cost, ModelledStepCost):
        ticks = cost.step(chunks, num_decodes, context, num_sampled).gpu
        return SpelledStep(0, [StepLaunch(0, (Kernel("step", "constant_step", 0.0, 0.0, ticks, "floor"),))], 0, 0)
    mode, rows = cost.graph_of(chunks, num_decodes)
    return SpelledStep(
        cost.host.before + cost.host.per_sequence * (num_decodes + len(chunks)),
        cost.launches(chunks, num_decodes, context, num_sampled),
        cost.host.after,
        0 if mode is GraphMode.NONE else rows,
    )
