"""Measured times of attention: over decodes by batch and context, over prompts by their length."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from simserve.cost.curve import FloatArray
from simserve.cost.grid import Table, between, filled, isotonic, rising
from simserve.spec.ticks import TICKS_PER_SECOND


class AttentionHeads(NamedTuple):
    """Heads on one GPU, counted as heads of 128 elements, and the format of the KV cache."""

    queries: float
    keys: float
    kv_dtype: str

    @property
    def group(self) -> float:
        """Query heads that share a KV head."""
        return self.queries / self.keys


class DecodeTable:
    """Decode attention of one layer, in ticks: straight lines between measured batches and contexts.

    Sequences with other heads than the measured ones count as more or fewer sequences, by their KV heads; four KV heads
    as half of eight rather than twice two, since two sequences may start another kernel than one. `cold`: as in a
    model, where no KV is left in L2 from the step before; otherwise as in the loop that measured it.
    """

    def __init__(self, table: Table, heads: AttentionHeads, *, cold: bool = False) -> None:
        shapes = {(float(key[0]), float(key[1])) for key in table.rows}
        queries, keys = nearest(shapes, heads)
        rows = {float(key[0]): row for key, row in table.sub(f"{queries:g}", f"{keys:g}").rows.items()}
        self.scale = heads.keys / keys
        self._batches = np.array(sorted(rows)) / self.scale
        self.lengths = table.sizes
        times = np.stack([rows[batch] for batch in sorted(rows)])
        if self._batches[0] > 1:  # fewer take as long
            self._batches, times = np.append(1.0, self._batches), np.append(times[:1], times, axis=0)
        self._longest = np.array([table.sizes[~np.isnan(row)][-1] for row in times])
        times = rising(rising(self._continued(times), 0), 1)
        self._times = self._strictly((rising(self._cold(times)) if cold else times) * TICKS_PER_SECOND)

    def multiply(self, share: Callable[[float, float], float]) -> None:
        """Multiply each time by a share, given its batch and context."""
        shares = [[share(batch, length) for length in self.lengths] for batch in self._batches]
        times = self._times * np.array(shares)
        self._times = self._strictly(rising(rising(times, 0), 1))

    def _continued(self, times: FloatArray) -> FloatArray:
        """Times with those of longer contexts than measured, which go on as the last measured ones rise."""
        grown = np.exp(filled(np.log(times), (np.log(self._batches), np.log(self.lengths))))
        for row, longest in zip(grown, self._longest, strict=True):
            last = int(np.searchsorted(self.lengths, longest))
            rise = (row[last] - row[last - 1]) / (longest - self.lengths[last - 1])
            row[last:] = row[last] + max(0.0, rise) * (self.lengths[last:] - longest)
        return grown

    def _cold(self, times: FloatArray) -> FloatArray:
        """Times with KV caches that come from HBM, whatever their size.

        A cache smaller than L2 is still there when a timing loop reads it again; in a model all other layers and their
        weights pass between two reads. The time of a batch rises with its context, in a straight line from the shortest
        to the longest that was measured: what lies below it was read from L2. On RTX PRO 6000 and 104 batches that were
        measured inside a model (vLLM 0.19, LLMServingSim, MIT) this takes the mean error from 14 to 6 %.
        """
        last = np.searchsorted(self.lengths, self._longest)
        start, end = times[:, 0], times[np.arange(len(times)), last]
        rise = (end - start) / (self._longest - self.lengths[0])
        line = start[:, None] + rise[:, None] * (self.lengths - self.lengths[0])
        cold: FloatArray = np.maximum(times, line)
        return cold

    def _strictly(self, ticks: FloatArray) -> FloatArray:
        """Ticks with a step from batch to batch that no rounding of slopes (up to a tick a token) can undo."""
        for i in range(1, len(ticks)):
            more = self._batches[i] - self._batches[i - 1]
            ticks[i] = np.maximum(ticks[i], ticks[i - 1] + more * (self._batches[i] * self.lengths + 2))
        return ticks

    def pieces(self, num_decodes: int) -> list[tuple[int, int, int]]:
        """(until, base, slope) in the tokens of context that `num_decodes` sequences read."""
        largest = self._batches[-1]
        ticks = between(self._batches, self._times, num_decodes) * max(1.0, num_decodes / largest)
        at = [num_decodes * int(length) for length in self.lengths]
        heights = [int(tick) for tick in ticks]
        pieces = [(at[0], heights[0], 0)]
        for start, until, low, high in zip(at, at[1:], heights, heights[1:], strict=False):
            slope = (high - low) // (until - start)
            pieces.append((until, low - slope * start, slope))
        pieces.append((2**62, heights[-1] - slope * at[-1], slope))
        return pieces

    def measured_context(self, num_decodes: int) -> int:
        """Most tokens of context that so many sequences had in a measurement; 0 for more sequences than any."""
        if num_decodes > self._batches[-1]:
            return 0
        return int(num_decodes * self._longest[np.searchsorted(self._batches, num_decodes)])


IDLE_SHARE = 0.15
"""Share of the shortest prefill attention in which a GPU does the work of further short prompts at no cost: fitted to
batches of prompts on all measured cards."""


class PrefillTable(NamedTuple):
    """Causal attention of one layer over prompts without history, at each of `lengths`: seconds of a prompt `alone`,
    seconds that each prompt of a step adds (`more`), and seconds beyond their sum, which never fall with the length.
    `step`: seconds that a step takes at least in which `tokens` tokens are prefilled, in however many prompts.
    """

    lengths: FloatArray
    alone: FloatArray
    more: FloatArray
    beyond: FloatArray
    tokens: FloatArray
    step: FloatArray

    @classmethod
    def of(cls, table: Table, heads: AttentionHeads) -> "PrefillTable":
        """Times for some heads; among heads that were not measured the nearest's, by the number of query heads, and in
        the middle between two that are as near.
        """
        shapes = {(float(key[0]), float(key[1])) for key in table.rows}
        least = _distance(nearest(shapes, heads), heads)
        near = [shape for shape in sorted(shapes) if np.isclose(_distance(shape, heads), least)]
        alone, more, step = (_middle([_prefill_row(table, shape, load, heads) for shape in near]) for load in _LOADS)
        alone = np.maximum(rising(alone), more := rising(more))
        known = ~np.isnan(step)
        beyond = isotonic(alone - more) - IDLE_SHARE * alone[0]
        return cls(table.sizes, alone, more, beyond, table.sizes[known], step[known])

    def step_at(self, tokens: FloatArray) -> FloatArray:
        """`step` for any number of tokens, 1 or more; beyond the largest it grows with them."""
        seconds: FloatArray = np.interp(tokens, self.tokens, self.step) * np.maximum(1.0, tokens / self.tokens[-1])
        return seconds

    def beyond_at(self, length: FloatArray) -> FloatArray:
        """`beyond` for prompts of any length."""
        seconds: FloatArray = np.interp(length, self.lengths, self.beyond)
        return seconds

    def alone_at(self, length: FloatArray) -> FloatArray:
        """`alone` for prompts of any length."""
        seconds: FloatArray = np.interp(length, self.lengths, self.alone)
        return seconds


_LOADS = ("alone", "more", "step")


def _prefill_row(table: Table, shape: tuple[float, float], load: str, heads: AttentionHeads) -> FloatArray:
    """Seconds that some heads take, from those that were measured. A prompt alone does not fill a card: with more heads
    it takes hardly longer.
    """
    row = table.rows[f"{shape[0]:g}", f"{shape[1]:g}", load]
    if load != "step":
        row = np.exp(filled(np.log(row), (np.log(table.sizes),)))
    return row if load == "alone" else row * (heads.queries / shape[0])


def _middle(rows: Sequence[FloatArray]) -> FloatArray:
    """The geometric mean of some rows."""
    middle: FloatArray = np.exp(np.mean(np.log(rows), axis=0))
    return middle


def nearest(shapes: Iterable[tuple[float, float]], heads: AttentionHeads) -> tuple[float, float]:
    """Of measured (query, KV) heads those nearest to some, the more of two that are as near."""
    return min(sorted(shapes, reverse=True), key=lambda shape: _distance(shape, heads))


def _distance(shape: tuple[float, float], heads: AttentionHeads) -> float:
    """How far measured heads lie from some: in queries per KV head first, then in their number."""
    queries, keys = shape
    return float(8 * abs(np.log(queries / keys / heads.group)) + abs(np.log(keys / heads.keys)))
