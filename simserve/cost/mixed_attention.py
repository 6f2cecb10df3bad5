"""Attention as it was measured inside a model: over a chunk after its history, over decodes, over both in one kernel.

A loop that times a kernel alone finds its KV in L2; in a model all weights were read in between. And a kernel over
chunks and decodes together is neither the one nor the other. What was measured inside a model is kept as shares of what
`AttentionTime` says of the same batch: they vary little between measured batches, and beyond these the nearest holds.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from math import log2
from typing import Any, NamedTuple

import numpy as np

from simserve.cost.attention import Attention, AttentionTime, layer_of
from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.decode_attention import DecodeTime
from simserve.cost.device import Device
from simserve.cost.grid import Table, filled, rising
from simserve.spec.ticks import to_seconds


def attention_time(attention: Attention, device: Device) -> AttentionTime:
    """Ticks of an attention layer, with what was measured inside a model where the device's tables hold that."""
    heads, tables = attention.measured_heads, device.tables
    if heads is None or tables is None or not device.cold:
        return AttentionTime(attention, device)
    measured = tables.mixed(heads)
    if measured is None:
        return AttentionTime(attention, device)
    table, measured_heads = measured
    modelled = AttentionTime(layer_of(measured_heads), Device.of(tables.card, tables.of_card(), cold=True))
    return InModelAttention(attention, device, shares_in_model(table, measured_heads, modelled))


class Axis:
    """Measured values of one dimension, on the scale of log2(1 + value)."""

    __slots__ = ("_widths", "points", "values")

    def __init__(self, values: Sequence[int]) -> None:
        self.values = values
        self.points = [log2(1.0 + value) for value in values]
        self._widths = [high - low for low, high in pairwise(self.points)]

    def place(self, value: float) -> tuple[int, float]:
        """The measured value below, by its number, and the share of the way to the next; outside, the ends hold."""
        at = log2(1.0 + value)
        below = bisect_right(self.points, at) - 1
        if below < 0:
            return 0, 0.0
        if below == len(self._widths):
            return below, 0.0
        return below, (at - self.points[below]) / self._widths[below]


class Shares:
    """Measured times as shares of modelled ones, on a grid. Of a measurement that is shorter than that of a smaller
    batch, or longer than that of a larger one, the mean of both counts.
    """

    def __init__(self, axes: Sequence[Axis], measured: Callable[..., float], modelled: Callable[..., float]) -> None:
        points = [np.array(axis.points) for axis in axes]
        shape = [len(axis.values) for axis in axes]
        grid = list(product(*(axis.values for axis in axes)))
        of_model = np.array([modelled(*values) for values in grid]).reshape(shape)
        shares = np.array([measured(*values) for values in grid]).reshape(shape) / of_model
        times = np.exp(filled(np.log(shares), points)) * of_model
        for axis in range(len(axes)):
            times = rising(times, axis)
        self._axes = axes
        self._grid = (times / of_model).tolist()

    def at(self, *values: float) -> float:
        """The share at any place: straight between the nearest measured ones."""
        return _between(self._grid, [axis.place(value) for axis, value in zip(self._axes, values, strict=True)])

    @property
    def least(self) -> float:
        """The smallest of them."""
        return float(np.min(self._grid))


def _between(grid: Any, places: Sequence[tuple[int, float]]) -> float:
    """Value in a grid of nested lists at a place in each dimension."""
    (below, share), *rest = places
    if not rest:
        low, high = grid[below], grid[below + 1] if share else 0.0
    else:
        low, high = _between(grid[below], rest), _between(grid[below + 1], rest) if share else 0.0
    return float(low + share * (high - low))


class InModel(NamedTuple):
    """Shares of attention over decodes alone (how many, context of each), and over a chunk and any number of decodes
    (new tokens, history, decodes, context), measured with so many KV heads.
    """

    decodes: Shares
    mixed: Shares
    keys: float


def shares_in_model(table: Table, heads: AttentionHeads, modelled: AttentionTime) -> InModel:
    """From seconds by (decodes, context, chunk; 0: none) and history; `modelled` has these heads."""
    histories = [int(size) for size in table.sizes]
    counts, contexts, chunks = (sorted({int(key[i]) for key in table.rows}) for i in range(3))

    def measured(new: int, before: int, decodes: int, context: int) -> float:
        row = table.rows.get((str(decodes), str(context if decodes else 0), str(new)))
        return float("nan") if row is None else float(row[histories.index(before)])

    def of_model(new: int, before: int, decodes: int, context: int) -> float:
        return to_seconds(modelled.mixed([(new, before)] if new else [], decodes, decodes * context))

    n, length = Axis([count for count in counts if count]), Axis([each for each in contexts if each])
    chunk, history = Axis([new for new in chunks if new]), Axis(histories)
    alone = (0, 0)
    return InModel(
        Shares((n, length), lambda *each: measured(*alone, *each), lambda *each: of_model(*alone, *each)),
        Shares((chunk, history, Axis([0, *n.values]), length), measured, of_model),
        heads.keys,
    )


class InModelAttention(AttentionTime):
    """What `AttentionTime` says, times the shares that were measured inside a model.

    The chunks of a step count as one of all their tokens, after the longest of their histories; decodes of more or
    fewer KV heads than measured as more or fewer decodes. With a chunk decodes take no less than without.
    """

    __slots__ = ("_modelled", "_scale", "_shares")

    def __init__(self, attention: Attention, device: Device, in_model: InModel) -> None:
        super().__init__(attention, device)
        assert attention.measured_heads is not None
        self._modelled = AttentionTime(attention, device)
        self._scale = scale = attention.measured_heads.keys / in_model.keys
        self._shares = in_model.mixed
        if self.table is not None:
            self.table.multiply(lambda batch, context: in_model.decodes.at(batch * scale, context))
            self.decodes = DecodeTime(self.table, attention.window)
            self.floor = self.decodes.ticks(1, 1)

    @property
    def least(self) -> int:
        """Fewest ticks that attention takes in any step."""
        return min(self.floor, int(self._shares.least * self._modelled.least))

    def mixed(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> int:
        """Ticks of attention over chunks and decodes together."""
        decodes = self.decodes.ticks(num_decodes, context) if num_decodes else 0
        if not chunks:
            return decodes
        new = sum([tokens for tokens, _ in chunks])
        longest = self._seen(max([history for _, history in chunks]))
        each = self._seen(context / num_decodes) if num_decodes else 0
        share = self._shares.at(new, longest, num_decodes * self._scale, each)
        return max(decodes, int(share * self._modelled.mixed(chunks, num_decodes, context)))

    def _seen(self, context: float) -> float:
        """Tokens that a window layer sees of a context."""
        window = self.attention.window
        return context if window is None else min(context, window)
