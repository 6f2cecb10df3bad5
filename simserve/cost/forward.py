"""A forward pass on a device: its kernels, its launches and their sums for a number of tokens.

Everything here depends on token counts alone and is computed once for each; what depends on context (attention) stays
a coefficient.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simserve.cost.attention import AttentionTime
from simserve.cost.device import Device
from simserve.cost.launch import GraphMode, Launch, LaunchTotals, gpu_work, launch_totals
from simserve.cost.operators import Kernel, TokenOperator
from simserve.cost.shape import ForwardShape, Layer

Stretch = list[tuple[int, list[Launch]]]


@dataclass(frozen=True, slots=True)
class LaunchTicks:
    """CPU ticks to launch one kernel, and to replay one CUDA graph."""

    kernel: int
    graph: int


class Forward:
    """Kernels and launches of one model on one device."""

    def __init__(self, shape: ForwardShape, device: Device, launch: LaunchTicks) -> None:
        self.shape = shape
        self.device = device
        self.launch = launch
        full, window = shape.full_attention, shape.window_attention
        self.full = AttentionTime(full, device) if full else None
        self.window = AttentionTime(window, device) if window else None

    def attention_time(self, layer: Layer) -> AttentionTime:
        """The attention of a layer on this device."""
        time = self.full if layer.attention.window is None else self.window
        assert time is not None
        return time

    def kernels(self, operators: Sequence[TokenOperator], rows: int) -> list[Kernel]:
        """Kernels of some operators over `rows` rows."""
        return [operator.kernel(rows, self.device) for operator in operators]

    def body(self, tokens: int, mode: GraphMode) -> LaunchTotals:
        """Sums over embedding, layers and last norm, run on `tokens` tokens."""
        return launch_totals(self.body_launches(tokens, mode))

    def head(self, rows: int) -> LaunchTotals:
        """Sums over lm_head and sampler, run on `rows` rows; outside any graph."""
        return launch_totals([(1, self.head_launches(rows))])

    def head_launches(self, rows: int) -> list[Launch]:
        """Launches of lm_head and sampler."""
        return self._one_by_one(self.shape.head, rows)

    def body_launches(self, tokens: int, mode: GraphMode) -> Stretch:
        """Launches from embedding to last norm as (repeat, launches), in the graph mode of the step."""
        if mode is GraphMode.NONE:
            return self._eager(tokens)
        pieces = list(self._pieces(tokens))
        if mode is GraphMode.PIECEWISE:
            return [(1, pieces)]
        return [(1, [Launch("graph", self.launch.graph, *gpu_work(pieces))])]

    def _eager(self, tokens: int) -> Stretch:
        stretch: Stretch = [(1, self._one_by_one(self.shape.embed, tokens))]
        for repeat, layers in self.shape.layers:
            launches: list[Launch] = []
            for layer in layers:
                launches += self._one_by_one(layer.before, tokens)
                launches.append(self._attention(layer))
                launches += self._one_by_one(layer.after, tokens)
            stretch.append((repeat, launches))
        stretch.append((1, self._one_by_one(self.shape.norm, tokens)))
        return stretch

    def _pieces(self, tokens: int) -> Iterator[Launch]:
        """Graphs of all that lies between two attentions, and the attentions."""
        gpu = self._ticks(self.shape.embed, tokens)
        for repeat, layers in self.shape.layers:
            around = [(self._ticks(layer.before, tokens), layer, self._ticks(layer.after, tokens)) for layer in layers]
            for before, layer, after in around * repeat:
                yield Launch("graph_piece", self.launch.graph, gpu + before)
                yield self._attention(layer)
                gpu = after
        yield Launch("graph_piece", self.launch.graph, gpu + self._ticks(self.shape.norm, tokens))

    def _ticks(self, operators: Sequence[TokenOperator], rows: int) -> int:
        return sum(kernel.ticks for kernel in self.kernels(operators, rows))

    def _one_by_one(self, operators: Sequence[TokenOperator], rows: int) -> list[Launch]:
        return [Launch(kernel.name, self.launch.kernel, kernel.ticks) for kernel in self.kernels(operators, rows)]

    def _attention(self, layer: Layer) -> Launch:
        """One launch covers the attention over chunks and over decodes: engines pass both in one call."""
        is_full = layer.attention.window is None
        return Launch("attention", self.launch.kernel, 0, full=int(is_full), window=int(not is_full))
