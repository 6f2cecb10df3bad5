"""One forward pass over any batch: its launches and kernels summed up, ready to follow another pass.

A step of speculative decoding is several of them in a row, of two models.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from simserve.cost.curve import IntArray
from simserve.cost.forward import Forward
from simserve.cost.launch import GraphMode, LaunchTotals, launch_totals, work_and_end
from simserve.cost.layer_time import LayerTime
from simserve.cost.modelled import TotalsTable
from simserve.cost.operators import Kernel


class PassTime(NamedTuple):
    """Ticks of passes one after the other: `cpu` for their launches, `gpu` for their kernels, and `end`, the end of the
    last kernel counted from the first launch on an idle GPU.
    """

    cpu: int
    gpu: int
    end: int

    def then(self, other: "PassTime") -> "PassTime":
        """Another pass whose launches follow at once: the GPU begins with it when it is done with this one."""
        return PassTime(self.cpu + other.cpu, self.gpu + other.gpu, max(self.end + other.gpu, self.cpu + other.end))

    def after(self, host: int) -> "PassTime":
        """The same after so many ticks of work on the CPU."""
        return PassTime(self.cpu + host, self.gpu, self.end + host)


def kernels_of_pass(
    forward: Forward, rows: int, sampled: int, attention: Callable[[LayerTime], list[Kernel]]
) -> Iterator[Kernel]:
    """Kernels of a pass in order; their ticks are the GPU time that `PassCost` answers with."""
    yield from forward.kernels(forward.shape.embed, rows)
    for layer in forward.shape.each_layer():
        yield from forward.kernels(layer.before, rows)
        yield from attention(forward.attention_time(layer))
        yield from forward.kernels(layer.after, rows)
    yield from forward.kernels(forward.shape.norm, rows)
    yield from forward.kernels(forward.shape.head, sampled)


class PassCost:
    """Time of one pass of a model; every part that depends on a count alone is computed once for that count.

    `whole_graphs`: a graph of the whole model holds lm_head and sampler too.
    """

    def __init__(self, forward: Forward, *, whole_graphs: bool = False) -> None:
        self.forward = forward
        self._whole_graphs = whole_graphs
        self._tables = {
            mode: TotalsTable(partial(self._totals, mode), forward.shortest_attention) for mode in GraphMode
        }
        self._head_table = TotalsTable(forward.head, ())
        self._bodies: dict[tuple[GraphMode, int], LaunchTotals[int]] = {}
        self._heads: dict[int, PassTime] = {}

    def time(self, mode: GraphMode, rows: int, sampled: int, attention: tuple[int, ...]) -> PassTime:
        """A pass over `rows` rows in a graph mode, `sampled` of them through lm_head; `attention`: ticks of a layer of
        each kind.
        """
        cpu, work, lines = self._body(mode, rows)
        gpu, last = work_and_end(work, lines, attention)
        body = PassTime(cpu, gpu, max(cpu, last))
        head = self._head(sampled)
        if self._whole_graphs and mode is GraphMode.FULL:
            return PassTime(body.cpu, body.gpu + head.gpu, body.end + head.gpu)
        return body.then(head)

    def _totals(self, mode: GraphMode, rows: IntArray) -> LaunchTotals[IntArray]:
        return launch_totals(self.forward.body_launches(rows, mode))

    def _body(self, mode: GraphMode, rows: int) -> LaunchTotals[int]:
        body = self._bodies.get((mode, rows))
        if body is None:
            body = self._bodies[mode, rows] = self._tables[mode][rows]
        return body

    def _head(self, rows: int) -> PassTime:
        head = self._heads.get(rows)
        if head is None and not self.forward.shape.head:  # a stage of a pipeline before the last
            head = self._heads[rows] = PassTime(0, 0, 0)
        if head is None:
            totals = self._head_table[rows]
            head = self._heads[rows] = PassTime(totals.cpu, totals.gpu.base, totals.critical[0].base)
        return head
