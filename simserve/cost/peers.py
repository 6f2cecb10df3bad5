"""What replicas that share experts compute for each other in a step: gather tokens, experts, scatter results."""

from collections.abc import Sequence

import numpy as np

from simserve.cost.modelled import ModelledStepCost
from simserve.cost.operators import Collective, Gathered
from simserve.cost.step import StepCost, StepTime


class PeerCost:
    """The step of a group of ranks from the steps that each would take if all had as many tokens as it.

    `cost` of one rank; where it knows no operators (a constant step), nothing is shared.
    """

    def __init__(self, cost: StepCost) -> None:
        self._update = cost.update
        self._forward = cost.forward if isinstance(cost, ModelledStepCost) else None
        self._shared: dict[int, int] = {}

    def shared(self, rows: int) -> int:
        """GPU ticks of what is done for the tokens of all ranks, of which each has `rows`."""
        ticks = self._shared.get(rows)
        if ticks is None:
            ticks = self._shared[rows] = self._sum(rows)
        return ticks

    def _sum(self, rows: int) -> int:
        forward, ticks = self._forward, 0
        if forward is not None:
            one = np.array([rows], dtype=np.float64)
            for operator, count in forward.operators.items():
                if isinstance(operator, Collective | Gathered):
                    ticks += count * int(operator.work(one, forward.device).ticks()[0])
        return ticks

    def step(self, steps: Sequence[StepTime], tokens: Sequence[int]) -> tuple[StepTime, list[int]]:
        """The step that all take, and the GPU ticks of each rank in it; the others it waits for its peers.

        Where every rank has a graph, all are padded to the largest; if one has none, none has, and the experts see the
        tokens there are (vLLM 0.32, v1/worker/dp_utils.py, `_synchronize_dp_ranks`). What the ranks do apart takes the
        longest of them. `tokens`: those of each rank's step. Equal steps give that very step.
        """
        padded = [step.padded for step in steps]
        graph = max(padded) if min(padded) else 0
        of_all = self.shared(graph or -(-sum(tokens) // len(tokens)))
        gpus = [
            step.gpu - self.shared(step.padded or count) + of_all for step, count in zip(steps, tokens, strict=True)
        ]
        gpu, cpu = max(gpus), max(step.cpu for step in steps)
        # Until its first kernel, and wherever it waits for a launch, the GPU idles as long as it would alone; and no
        # step ends before all of it is launched.
        idle = max(step.latency - step.gpu for step in steps)
        return StepTime(cpu, gpu, max(gpu + idle, cpu - self._update), graph), gpus
