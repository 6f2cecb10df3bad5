"""Step cost of a pipeline: one cost for each of its stages."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from simserve.cost.step import DecodeCost, Piece, StepCost, StepTime
from simserve.cost.unevenness import Unevenness


class StageTicks(NamedTuple):
    """Ticks of a step on one stage: all kernels, and from the step's decision to their end on an idle GPU."""

    gpu: int
    latency: int


class PipelineCost:
    """A `StepCost` that adds up stages, for a step that meets nobody on its way; `stage_ticks` has them one by one.

    The first stage carries the host's work on the step; on the others it is done while the first computes.
    """

    update = 0
    uneven: Unevenness | None = None

    def __init__(self, stages: Sequence[StepCost]) -> None:
        self.stages = tuple(stages)

    def for_one_run(self) -> "PipelineCost":
        """The same stages, each for one run."""
        return PipelineCost([stage.for_one_run() for stage in self.stages])

    def stage_ticks(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> tuple[int, int, list[StageTicks]]:
        """CPU ticks of a step on the first stage, tokens of its CUDA graph (0 without), and its time on each stage."""
        times = [stage.ticks(chunks, num_decodes, context, num_sampled) for stage in self.stages]
        return times[0][0], times[0][3], [StageTicks(gpu, latency) for _, gpu, latency, _ in times]

    def step(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int) -> StepTime:
        """A step that passes all stages; see `StepCost.step`."""
        return StepTime(*self.ticks(chunks, num_decodes, context, num_sampled))

    def ticks(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> tuple[int, int, int, int]:
        """`step` as a plain tuple."""
        cpu, padded, stages = self.stage_ticks(chunks, num_decodes, context, num_sampled)
        latency = stages[0].latency + sum(stage.gpu for stage in stages[1:])
        return cpu, sum(stage.gpu for stage in stages), latency, padded

    def decode(self, num_decodes: int) -> DecodeCost:
        """Cost of a step of `num_decodes` decodes that meets nobody on its way."""
        costs = [stage.decode(num_decodes) for stage in self.stages]
        ends = sorted({piece.until for cost in costs for piece in cost.pieces})
        pieces = [_passed([_piece_at(cost, until) for cost in costs], until) for until in ends]
        return costs[0]._replace(pieces=tuple(pieces))

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Seconds of each group of operators over a step log, of an average stage, as the log's `gpu_time` is: what
        the other groups leave of it is `attention_prefill`.
        """
        parts = [stage.breakdown(steps) for stage in self.stages]
        names = dict.fromkeys(name for part in parts for name in part)
        groups = {name: sum(part.get(name, 0.0) for part in parts) / len(parts) for name in names}
        if groups.get("attention_prefill"):
            others = sum(groups[name] for name in names if name not in {"attention_prefill", "host"})
            groups["attention_prefill"] = max(0.0, float(steps["gpu_time"].sum()) - others)
        return groups

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:
        """Steps beyond what was measured on any stage."""
        return max(stage.extrapolated_steps(steps) for stage in self.stages)


def _piece_at(cost: DecodeCost, context: int) -> Piece:
    return next(piece for piece in cost.pieces if context <= piece.until)


def _passed(stages: Sequence[Piece], until: int) -> Piece:
    """One piece of all stages: the latency of the first, and the kernels of those behind it."""
    gpu = sum(piece.gpu_base for piece in stages), sum(piece.gpu_slope for piece in stages)
    first = stages[0]
    behind = gpu[0] - first.gpu_base + first.latency_base, gpu[1] - first.gpu_slope + first.latency_slope
    return Piece(until, *gpu, *behind)
