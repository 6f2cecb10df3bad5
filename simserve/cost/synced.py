"""A forward pass that waits for the GPU once a layer: `.item()`, a copy to the CPU, a branch on a value of a tensor.

No CUDA graph can hold such a wait, and no launch runs ahead of it: the launches of a layer begin when all kernels of
the layer before have ended. So a step is a sum over stretches (the layers, the first with the embedding before it; last
norm, lm_head and sampler), each as long as its own launches and kernels take on an idle GPU.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np

from simserve.cost.forward import Forward
from simserve.cost.kernels import StepLaunch
from simserve.cost.launch import GraphMode, GraphPolicy, Launch, Line, launch_totals, ticks_of, totals_of_one
from simserve.cost.modelled import HostTicks, ModelledStepCost
from simserve.cost.pieces import along, common_pieces, upper_envelope
from simserve.cost.step import UNBOUNDED, DecodeCost, Piece

Lines = tuple[Line[int], ...]
"""A stretch: it takes as long as the longest of these does for the attention of its layers."""


class SyncedStepCost(ModelledStepCost):
    """A `StepCost` whose forward pass waits for the GPU at the end of each layer: synchronous steps without graphs."""

    def __init__(self, forward: Forward, policy: GraphPolicy, host: HostTicks) -> None:
        assert not policy.sizes
        assert host.after == 0, "of asynchronous scheduling"
        super().__init__(forward, policy, host)
        self._layers: dict[int, Counter[Lines]] = {}
        self._tails: dict[tuple[int, int], int] = {}

    def ticks(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> tuple[int, int, int, int]:
        """`step` as a plain tuple; see `StepCost.ticks`."""
        cpu, gpu, latency, padded = super().ticks(chunks, num_decodes, context, num_sampled)
        if chunks:
            rows = num_decodes + sum(new for new, _ in chunks)
            attention = [time.mixed(chunks, num_decodes, context) for time in self.forward.times]
            latency = self._before(num_decodes + len(chunks)) + self._tail(rows, num_sampled)
            for lines, count in self._stretches(rows).items():
                latency += count * max(ticks_of(line, attention) for line in lines)
        return cpu, gpu, latency, padded

    def launches(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> list[StepLaunch]:
        """Launches of a step, those marked after which the CPU waits."""
        launches = super().launches(chunks, num_decodes, context, num_sampled)
        last = len(self.forward.shape.embed) - 1
        for repeat, layers in self.forward.shape.layers:
            for layer in chain.from_iterable([layers] * repeat):
                last += len(layer.before) + 1 + len(layer.after)
                launches[last] = launches[last]._replace(sync=True)
        return launches

    def _before(self, sequences: int) -> int:
        """Host work ahead of the first launch."""
        return self.host.before + self.host.per_sequence * sequences

    def _tail(self, rows: int, num_sampled: int) -> int:
        """From the last wait to the end of the step: last norm and head."""
        time = self._tails.get((rows, num_sampled))
        if time is None:
            (_, norm) = self.forward.body_launches(np.array([rows]), GraphMode.NONE)[-1]
            head = self.forward.head_launches(np.array([num_sampled]))
            time = launch_totals([(1, [*norm, *head])]).critical[0].base.item(0)
            self._tails[rows, num_sampled] = time
        return time

    def _stretches(self, rows: int) -> Counter[Lines]:
        """How often each stretch comes in a step of so many rows, up to the last wait."""
        stretches = self._layers.get(rows)
        if stretches is None:
            stretches = self._layers[rows] = Counter(map(self._lines, self._launches_by_wait(rows)))
        return stretches

    def _launches_by_wait(self, rows: int) -> list[list[Launch]]:
        (_, embed), *groups, _ = self.forward.body_launches(np.array([rows]), GraphMode.NONE)
        found = []
        for (repeat, launches), (_, layers) in zip(groups, self.forward.shape.layers, strict=True):
            ends = np.cumsum([0, *(len(layer.before) + 1 + len(layer.after) for layer in layers)]).tolist()
            found += [launches[start:end] for start, end in pairwise(ends)] * repeat
        found[0] = [*embed, *found[0]]
        return found

    def _lines(self, launches: list[Launch]) -> Lines:
        return totals_of_one(launch_totals([(1, launches)]), 0, self.forward.shortest_attention).critical

    def _compile_decode(self, num_decodes: int) -> DecodeCost:
        ahead = super()._compile_decode(num_decodes)
        fixed = self._before(num_decodes) + self._tail(num_decodes, num_decodes)
        pieces: list[Piece] = []
        start = 0
        for until, attention in common_pieces([time.decodes.pieces(num_decodes) for time in self.forward.times]):
            sums = [(until, (fixed, 0))]
            for lines, count in self._stretches(num_decodes).items():
                ends = [along(line, attention) for line in lines]
                sums = _added(sums, upper_envelope(ends, start, until), count)
            for stop, latency in sums:
                gpu_base, gpu_slope = _gpu_at(ahead, start)
                pieces.append(Piece(stop, gpu_base, gpu_slope, *latency))
            start = until + 1
        assert pieces[-1].until == UNBOUNDED
        return ahead._replace(pieces=tuple(pieces))


def _gpu_at(cost: DecodeCost, context: int) -> tuple[int, int]:
    """(base, slope) of the GPU's time at a context; it changes where the pieces of attention do."""
    piece = next(piece for piece in cost.pieces if context <= piece.until)
    return piece.gpu_base, piece.gpu_slope


def _added(
    sums: list[tuple[int, tuple[int, int]]], more: list[tuple[int, tuple[int, int]]], count: int
) -> list[tuple[int, tuple[int, int]]]:
    """Sum of a function and `count` times another, both as (last context, (base, slope)) up to the same context."""
    added = []
    i = j = 0
    while i < len(sums):
        (until, (base, slope)), (stop, (more_base, more_slope)) = sums[i], more[j]
        end = min(until, stop)
        added.append((end, (base + count * more_base, slope + count * more_slope)))
        i += until == end
        j += stop == end
    return added
