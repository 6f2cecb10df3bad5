"""How the kernels of a step reach the GPU: one by one, in CUDA graphs cut at the attention, or in one graph.

The CPU launches ahead of the GPU. A kernel starts when its launch is done and its predecessor has ended, so that a
step ends at the maximum, over its launches, of the launch's end plus all GPU work from there on (max-plus). Every such
term is linear in the times of the attention of one layer of each kind, which is all that changes while a batch decodes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from operator import add, mul
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from simserve.cost.curve import IntArray


class GraphMode(Enum):
    """What runs a step. `FULL`: one graph holds the model; `PIECEWISE`: graphs between attentions; `NONE`: no graph."""

    FULL = "full"
    PIECEWISE = "piecewise"
    NONE = "none"


class GraphPolicy(NamedTuple):
    """Which graph a step uses (vLLM 0.32, vllm/v1/cudagraph_dispatcher.py).

    `sizes`: captured sizes; a step is padded to the next one, and has no graph above the last. `decode` and `mixed`:
    mode of a step of decodes alone and of one with prompt chunks. Full graphs for decodes are captured up to
    `max_num_seqs` only, beyond which the mode of mixed steps applies.
    """

    sizes: tuple[int, ...]
    decode: GraphMode
    mixed: GraphMode
    max_num_seqs: int

    def choose(self, tokens: int, *, decode_only: bool) -> tuple[GraphMode, int]:
        """Mode of a step of `tokens` tokens, and the tokens its GEMMs run on."""
        if not self.sizes or tokens > self.sizes[-1]:
            return GraphMode.NONE, tokens
        padded = self.sizes[bisect_left(self.sizes, tokens)]
        mode = self.decode if decode_only and padded <= self.max_num_seqs else self.mixed
        return (mode, tokens) if mode is GraphMode.NONE else (mode, padded)


NO_GRAPHS = GraphPolicy((), GraphMode.NONE, GraphMode.NONE, 0)


def graph_policy(mode: str, sizes: Sequence[int], max_num_seqs: int) -> GraphPolicy:
    """Policy of vLLM's `cudagraph_mode`: full_and_piecewise, full_decode_only, piecewise, full or none."""
    full, piecewise, none = GraphMode.FULL, GraphMode.PIECEWISE, GraphMode.NONE
    decode, mixed = {
        "full_and_piecewise": (full, piecewise),
        "full_decode_only": (full, none),
        "piecewise": (piecewise, piecewise),
        "full": (full, full),
        "none": (none, none),
    }[mode]
    if decode is none:
        return NO_GRAPHS
    return GraphPolicy(tuple(sizes), decode, mixed, max_num_seqs)


_NO_TICKS = np.zeros(1, dtype=np.int64)

Ticks = TypeVar("Ticks", int, IntArray)
"""Ticks for one row count, or for each of many."""


class Launch(NamedTuple):
    """One launch: CPU ticks, and GPU ticks of the kernels it starts, for each of many row counts.

    The GPU ticks are `gpu`, plus the attention of some `layers` of each kind, which is known only with the batch; of
    none where that is empty.
    """

    name: str
    cpu: int
    gpu: IntArray = _NO_TICKS
    layers: tuple[int, ...] = ()


class Line(NamedTuple, Generic[Ticks]):
    """`base` ticks plus the attention of so many `layers` of each kind."""

    base: Ticks
    layers: tuple[int, ...]


class LaunchTotals(NamedTuple, Generic[Ticks]):
    """Sums over a stretch of launches, and the lines whose maximum is its end, counted from its first launch.

    Lines come in the order of their launches: each has less attention still to come than the one before it.
    """

    cpu: int
    gpu: Line[Ticks]
    critical: tuple[Line[Ticks], ...]


def launch_totals(stretch: Iterable[tuple[int, Sequence[Launch]]]) -> LaunchTotals[IntArray]:
    """Totals of a stretch, given as (repeat, launches) in order.

    Within a repeated group the term of a launch is linear in the number of the repetition, so that its maximum lies at
    the first or the last one. Of terms with the same attention only the latest counts.
    """
    groups = [(repeat, launches) for repeat, launches in stretch if repeat and launches]
    num_kinds = max([len(launch.layers) for _, launches in groups for launch in launches], default=0)
    after = nothing = Line(_NO_TICKS, (0,) * num_kinds)
    latest: dict[tuple[int, ...], IntArray] = {}
    cpu_total = sum(repeat * sum(launch.cpu for launch in launches) for repeat, launches in groups)
    before = cpu_total
    for repeat, launches in reversed(groups):
        cpu = sum(launch.cpu for launch in launches)
        once = nothing
        for launch in launches:
            once = _with(once, launch)
        before -= repeat * cpu
        for turn in {0, repeat - 1}:
            for base, layers in _terms(launches, before + turn * cpu, _add(after, once, repeat - 1 - turn)):
                latest[layers] = np.maximum(base, latest.get(layers, base))
        after = _add(after, once, repeat)
    lines = (Line(latest[layers], layers) for layers in sorted(latest, reverse=True))
    return LaunchTotals(cpu_total, after, critical=tuple(lines))


def totals_of_one(totals: LaunchTotals[IntArray], index: int, least: Sequence[int]) -> LaunchTotals[int]:
    """Totals for one of the row counts, with the lines that can be the maximum.

    `least`: the shortest attention of a layer of each kind. A line that is not above the earlier ones there never will
    be, as they rise faster.
    """
    critical: list[Line[int]] = []
    highest = -1
    for bases, layers in totals.critical:
        base = bases.item(index)
        height = base + sum(map(mul, layers, least))
        if height > highest:
            highest = height
            critical.append(Line(base, layers))
    gpu = Line(totals.gpu.base.item(index), totals.gpu.layers)
    return LaunchTotals(totals.cpu, gpu, tuple(critical))


def ticks_of(line: Line[int], attention: Sequence[int]) -> int:
    """Ticks of a line, given those of the attention of one layer of each kind."""
    ticks, layers = line
    for kind, one_layer in enumerate(attention):
        ticks += layers[kind] * one_layer
    return ticks


def work_and_end(work: Line[int], lines: Sequence[Line[int]], attention: Sequence[int]) -> tuple[int, int]:
    """GPU ticks of a stretch, and its end by the last of its lines; `attention` as in `ticks_of`."""
    gpu, layers = work
    for kind, one_layer in enumerate(attention):
        gpu += layers[kind] * one_layer
    last = 0
    for end, layers in lines:
        for kind, one_layer in enumerate(attention):
            end += layers[kind] * one_layer  # noqa: PLW2901
        if end > last:  # noqa: PLR1730 (max() takes three times as long)
            last = end
    return gpu, last


def _with(work: Line[IntArray], launch: Launch) -> Line[IntArray]:
    """GPU work and that of one launch more."""
    layers = tuple(map(add, work.layers, launch.layers)) if launch.layers else work.layers
    return Line(work.base + launch.gpu, layers)


def _add(work: Line[IntArray], more: Line[IntArray], times: int) -> Line[IntArray]:
    layers = tuple([one + times * other for one, other in zip(work.layers, more.layers, strict=True)])
    return Line(work.base + times * more.base, layers)


def _terms(launches: Sequence[Launch], start: int, rest: Line[IntArray]) -> Iterator[Line[IntArray]]:
    """Of each launch, the last first: its end on the CPU plus the GPU work from it on."""
    end = start + sum(launch.cpu for launch in launches)
    for launch in reversed(launches):
        rest = _with(rest, launch)
        yield Line(end + rest.base, rest.layers)
        end -= launch.cpu
