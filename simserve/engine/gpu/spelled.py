"""A step as a CPU issues it: host work, launches with their kernels, host work again."""

from typing import NamedTuple

from simserve.cost.kernels import Batch, StepLaunch
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

    @property
    def cpu(self) -> int:
        """All ticks that the CPU works."""
        return self.before + sum(launch.cpu for launch in self.launches) + self.after


def spell_out(cost: StepCost, batch: Batch) -> SpelledStep:
    """A step launch by launch. A cost that knows no kernels is one kernel, launched at once."""
    if not isinstance(cost, ModelledStepCost):
        return SpelledStep(0, [StepLaunch(0, (_whole_step(cost.step(*batch).gpu),))], 0, 0)
    chunks, num_decodes, _, _ = batch
    mode, rows = cost.graph_of(chunks, num_decodes)
    before = cost.host.before + cost.host.per_sequence * (num_decodes + len(chunks))
    return SpelledStep(before, cost.launches(*batch), cost.host.after, 0 if mode is GraphMode.NONE else rows)


def _whole_step(ticks: int) -> Kernel:
    return Kernel("step", "constant_step", 0.0, 0.0, ticks, "floor")
