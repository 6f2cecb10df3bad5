"""Step cost from the operators of the model on the GPU of the scenario, compiled for each batch size it meets."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.cost.breakdown import step_time_breakdown
from simserve.cost.curve import IntArray
from simserve.cost.extrapolation import extrapolated_steps
from simserve.cost.forward import Forward
from simserve.cost.kernels import Batch, StepLaunch, launches_of_step
from simserve.cost.launch import (
    GraphMode,
    GraphPolicy,
    Launch,
    LaunchTotals,
    Line,
    launch_totals,
    totals_of_one,
    work_and_end,
)
from simserve.cost.layer_time import LayerTime
from simserve.cost.pieces import along, common_pieces, upper_envelope
from simserve.cost.step import DecodeCost, Piece, StepTime
from simserve.cost.unevenness import Unevenness


class HostTicks(NamedTuple):
    """Engine-core CPU ticks of a step: before its first launch, for each sequence (before it too), and afterwards.

    `after` is what lies between the end of the GPU's work and the tokens being known. A synchronous engine waits for
    it before it plans again, so that it may as well count as `before`.
    """

    before: int
    per_sequence: int
    after: int


_TOGETHER = 2048
"""Row counts whose sums are computed at once: one pass over the operators costs hardly more than for a single count."""


class TotalsTable:
    """Sums of a part of the step by its number of rows, computed block by block as they are asked for."""

    def __init__(self, compute: Callable[[IntArray], LaunchTotals[IntArray]], least: tuple[int, ...]) -> None:
        self._compute = compute
        self._least = least
        self._blocks: dict[int, LaunchTotals[IntArray]] = {}

    def __getitem__(self, rows: int) -> LaunchTotals[int]:
        """Sums over `rows` rows, 1 or more."""
        number, index = divmod(rows - 1, _TOGETHER)
        block = self._blocks.get(number)
        if block is None:
            first = number * _TOGETHER + 1
            block = self._blocks[number] = self._compute(np.arange(first, first + _TOGETHER))
        return totals_of_one(block, index, self._least)


MixedBody = tuple[int, Line[int], tuple[Line[int], ...], int]
"""CPU ticks of a step with chunks up to its head, its GPU work, the lines of its end, and the size of its graph."""


class ModelledStepCost:
    """A `StepCost` that sums operators. Every part that depends on a count alone is computed once for that count."""

    def __init__(self, forward: Forward, policy: GraphPolicy, host: HostTicks) -> None:
        self.update = host.after
        self.uneven: Unevenness | None = forward.uneven
        self.forward = forward
        self.policy = policy
        self.host = host
        self._per_sequence = host.per_sequence
        self._times: tuple[LayerTime, ...] = forward.times
        self._only: LayerTime | None = forward.times[0] if len(forward.times) == 1 else None
        self._bodies = {
            mode: TotalsTable(partial(self._body_totals, mode), forward.shortest_attention) for mode in GraphMode
        }
        self._head = TotalsTable(forward.head, ())
        self._decodes: dict[int, DecodeCost] = {}
        self._mixed: dict[int, MixedBody] = {}
        self._heads: dict[int, tuple[int, int, int]] = {}

    def for_one_run(self) -> "ModelledStepCost":
        """Itself: it remembers no steps."""
        return self

    def decode(self, num_decodes: int) -> DecodeCost:
        """Cost of a step of `num_decodes` decodes and nothing else."""
        cost = self._decodes.get(num_decodes)
        if cost is None:
            cost = self._decodes[num_decodes] = self._compile_decode(num_decodes)
        return cost

    def step(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int) -> StepTime:
        """Cost of any step; see `StepCost.step`."""
        return StepTime(*self.ticks(chunks, num_decodes, context, num_sampled))

    def ticks(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> tuple[int, int, int, int]:
        """`step` as a plain tuple; see `StepCost.ticks`."""
        if not chunks:
            return self.decode(num_decodes).ticks(context)
        tokens = num_decodes
        for new, _ in chunks:
            tokens += new
        cpu, work, lines, padded = self._mixed.get(tokens) or self._compile_mixed(tokens)
        head_cpu, head_gpu, head_end = self._heads.get(num_sampled) or self._compile_head(num_sampled)
        end = cpu + head_end
        only = self._only
        if only is not None:  # nearly every model: no loop over kinds
            attention = only.mixed(chunks, num_decodes, context)
            gpu = work[0] + work[1][0] * attention
            for base, (layers,) in lines:
                line = base + layers * attention + head_gpu
                if line > end:  # noqa: PLR1730 (max() takes three times as long)
                    end = line
        else:
            of_each = [time.mixed(chunks, num_decodes, context) for time in self._times]
            gpu, last = work_and_end(work, lines, of_each)
            end = max(end, last + head_gpu)
        sequences = self._per_sequence * (num_decodes + len(chunks))
        return sequences + cpu + head_cpu, gpu + head_gpu, sequences + end, padded

    def graph_of(self, chunks: Sequence[tuple[int, int]], num_decodes: int) -> tuple[GraphMode, int]:
        """Graph mode of a step, and the tokens that its GEMMs run on."""
        return self.policy.choose(num_decodes + sum(new for new, _ in chunks), decode_only=not chunks)

    def launches(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> list[StepLaunch]:
        """Launches and kernels of a step, in order; between `host.before` and `host.after` of CPU time."""
        mode, rows = self.graph_of(chunks, num_decodes)
        return launches_of_step(self.forward, mode, rows, Batch(chunks, num_decodes, context, num_sampled))

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Seconds of each group of operators over a step log; see `step_time_breakdown`."""
        return step_time_breakdown(self.forward, self.policy, steps)

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:
        """Steps of a log beyond what was measured; see `StepCost.extrapolated_steps`."""
        return extrapolated_steps(self.forward, steps)

    def _body_totals(self, mode: GraphMode, rows: IntArray) -> LaunchTotals[IntArray]:
        """Sums up to the head, host work before the first launch included."""
        return launch_totals([(1, [Launch("host", self.host.before)]), *self.forward.body_launches(rows, mode)])

    def _body(self, tokens: int, *, decode_only: bool) -> tuple[LaunchTotals[int], int]:
        """Sums up to the head for a step of `tokens` tokens, and the size of its graph (0 without)."""
        mode, rows = self.policy.choose(tokens, decode_only=decode_only)
        return self._bodies[mode][rows], 0 if mode is GraphMode.NONE else rows

    def _compile_mixed(self, tokens: int) -> MixedBody:
        totals, padded = self._body(tokens, decode_only=False)
        self._mixed[tokens] = body = *totals, padded
        return body

    def _compile_head(self, rows: int) -> tuple[int, int, int]:
        """CPU ticks of the head and of the host after it, GPU ticks of the head, and its end on an idle GPU."""
        if not self.forward.shape.head:  # a stage of a pipeline before the last
            self._heads[rows] = part = self.host.after, 0, 0
            return part
        head = self._head[rows]
        part = head.cpu + self.host.after, head.gpu.base, head.critical[0].base
        self._heads[rows] = part
        return part

    def _compile_decode(self, num_decodes: int) -> DecodeCost:
        (cpu, gpu, lines), padded = self._body(num_decodes, decode_only=True)
        head_cpu, head_gpu, head_end = self._compile_head(num_decodes)
        sequences = self.host.per_sequence * num_decodes
        pieces: list[Piece] = []
        start = 0
        for until, attention in common_pieces([time.decodes.pieces(num_decodes) for time in self._times]):
            base, slope = along(Line(gpu.base + head_gpu, gpu.layers), attention)
            ends = [along(Line(sequences + head_gpu + line.base, line.layers), attention) for line in lines]
            ends.append((sequences + cpu + head_end, 0))
            pieces += [Piece(stop, base, slope, *end) for stop, end in upper_envelope(ends, start, until)]
            start = until + 1
        return DecodeCost(sequences + cpu + head_cpu, padded > 0, padded, tuple(pieces))
