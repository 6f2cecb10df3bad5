"""A forward pass on a device: its kernels, its launches and their sums for numbers of rows.

Everything here depends on row counts alone and is computed for many of them at once; what depends on context
(attention) stays a coefficient.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simserve.cost.curve import IntArray
from simserve.cost.device import Device
from simserve.cost.kinds.registry import KINDS
from simserve.cost.launch import GraphMode, Launch, LaunchTotals, launch_totals
from simserve.cost.layer_time import LayerTime
from simserve.cost.operators import FusedAllReduce, Kernel, Linear, TokenOperator, kernel_over
from simserve.cost.shape import ForwardShape, Layer
from simserve.cost.unevenness import Unevenness

Stretch = list[tuple[int, list[Launch]]]
OperatorTicks = dict[TokenOperator, IntArray]
"""Ticks of operators for each of some row counts."""


class LaunchTicks(NamedTuple):
    """CPU ticks to launch one kernel, to replay one CUDA graph, to call an operator from Python (the attention of a
    layer, an all-reduce that does the norm too), and to call a GEMM from Python that an autotuner chooses.
    """

    kernel: int
    graph: int
    python: int
    autotuned: int

    def of(self, operator: TokenOperator) -> int:
        """Ticks to launch an operator by itself."""
        if isinstance(operator, FusedAllReduce):
            return self.python
        if isinstance(operator, Linear) and operator.backend is not None:
            return self.autotuned
        return self.kernel


class Forward:
    """Kernels and launches of one model on one device.

    `times`: of one layer of each kind of attention that the model has; `layers`: how many layers are of each.
    """

    def __init__(self, shape: ForwardShape, device: Device, launch: LaunchTicks) -> None:
        self.shape = shape
        self.device = device
        self.launch = launch
        self.operators = shape.body()
        self._kernels: dict[tuple[TokenOperator, int], Kernel] = {}
        attentions = shape.attentions()
        self._place = {work: place for place, work in enumerate(attentions)}
        self.times = tuple([KINDS[work.kind].time(work, device) for work in attentions])
        self.layers = tuple(attentions.values())

    def attention_time(self, layer: Layer) -> LayerTime:
        """The attention of a layer on this device."""
        return self.times[self._place[layer.attention]]

    @property
    def shortest_attention(self) -> tuple[int, ...]:
        """Least ticks of the attention of one layer of each kind in any step."""
        return tuple([time.least for time in self.times])

    @property
    def uneven(self) -> Unevenness | None:
        """What decodes of unequal context take beyond equal ones, by the first kind of layer that minds it."""
        return next((time.uneven for time in self.times if time.uneven is not None), None)

    def kernels(self, operators: Sequence[TokenOperator], rows: int) -> list[Kernel]:
        """Kernels of some operators over `rows` rows."""
        kernels = []
        for operator in operators:
            kernel = self._kernels.get((operator, rows))
            if kernel is None:
                kernel = self._kernels[operator, rows] = kernel_over(operator, rows, self.device)
            kernels.append(kernel)
        return kernels

    def body_ticks(self, rows: IntArray) -> OperatorTicks:
        """Ticks of each operator of the body for each number of rows."""
        return self._ticks(self.operators, rows)

    def head_ticks(self, rows: IntArray) -> OperatorTicks:
        """Ticks of lm_head and sampler for each number of rows."""
        return self._ticks(self.shape.head, rows)

    def head(self, rows: IntArray) -> LaunchTotals[IntArray]:
        """Sums over lm_head and sampler, for each number of rows; outside any graph."""
        return launch_totals([(1, self.head_launches(rows))])

    def head_launches(self, rows: IntArray) -> list[Launch]:
        """Launches of lm_head and sampler."""
        return self._one_by_one(self.shape.head, self.head_ticks(rows))

    def body_launches(self, rows: IntArray, mode: GraphMode) -> Stretch:
        """Launches from embedding to last norm as (repeat, launches), in the graph mode of the step."""
        ticks = self.body_ticks(rows)
        if mode is GraphMode.NONE:
            return self._eager(ticks)
        if mode is GraphMode.PIECEWISE:
            return self._pieces(ticks)
        gpu = np.sum([times * ticks[operator] for operator, times in self.operators.items()], axis=0)
        return [(1, [Launch("graph", self.launch.graph, gpu, self.layers)])]

    def _ticks(self, operators: Iterable[TokenOperator], rows: IntArray) -> OperatorTicks:
        exact = rows.astype(np.float64)
        return {operator: operator.work(exact, self.device).ticks() for operator in operators}

    def _eager(self, ticks: OperatorTicks) -> Stretch:
        shape = self.shape
        stretch: Stretch = [(1, self._one_by_one(shape.embed, ticks))]
        for repeat, layers in shape.layers:
            launches: list[Launch] = []
            for layer in layers:
                launches += self._one_by_one(layer.before, ticks)
                launches.append(self._attention(layer))
                launches += self._one_by_one(layer.after, ticks)
            stretch.append((repeat, launches))
        return [*stretch, (1, self._one_by_one(shape.norm, ticks))]

    def _pieces(self, ticks: OperatorTicks) -> Stretch:
        """Graphs of all that lies between two attentions, and the attentions."""
        shape = self.shape
        firsts = [layers[0].before for _, layers in shape.layers]
        stretch: Stretch = [(1, [self._graph(shape.embed + firsts[0], ticks)])]
        for (repeat, layers), first, then in zip(shape.layers, firsts, [*firsts[1:], shape.norm], strict=True):
            stretch.append((repeat - 1, list(self._layer_pieces(layers, first, ticks))))
            stretch.append((1, list(self._layer_pieces(layers, then, ticks))))
        return stretch

    def _layer_pieces(
        self, layers: Sequence[Layer], then: Sequence[TokenOperator], ticks: OperatorTicks
    ) -> Iterator[Launch]:
        """Attention of each layer and the graph up to the next attention; `then` follows the last layer."""
        befores = [*(layer.before for layer in layers[1:]), then]
        for layer, before in zip(layers, befores, strict=True):
            yield self._attention(layer)
            yield self._graph((*layer.after, *before), ticks)

    def _graph(self, operators: Sequence[TokenOperator], ticks: OperatorTicks) -> Launch:
        return Launch("graph_piece", self.launch.graph, np.sum([ticks[operator] for operator in operators], axis=0))

    def _one_by_one(self, operators: Sequence[TokenOperator], ticks: OperatorTicks) -> list[Launch]:
        return [Launch(operator.name, self.launch.of(operator), ticks[operator]) for operator in operators]

    def _attention(self, layer: Layer) -> Launch:
        """One launch covers the attention over chunks and over decodes: engines pass both in one call."""
        place = self._place[layer.attention]
        one_of_its_kind = tuple([int(kind == place) for kind in range(len(self.times))])
        return Launch("attention", self.launch.python, layers=one_of_its_kind)
