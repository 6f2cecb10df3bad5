"""How the kernels of a step reach the GPU: one by one, in CUDA graphs cut at the attention, or in one graph.

The CPU launches ahead of the GPU. A kernel starts when its launch is done and its predecessor has ended, so that a
step ends at the maximum, over its launches, of the launch's end plus all GPU work from there on (max-plus). Every such
term is linear in the time of one attention kernel, which is all that changes while a batch decodes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
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

    The GPU ticks are `gpu`, plus `full` times the attention of a full layer, plus `window` times that of a window
    layer, both known only with the batch.
    """

    name: str
    cpu: int
    gpu: IntArray = _NO_TICKS
    full: int = 0
    window: int = 0


class Line(NamedTuple, Generic[Ticks]):
    """`base + full * x + window * y` ticks, x and y the attention of one full and of one window layer."""

    base: Ticks
    full: int
    window: int


class LaunchTotals(NamedTuple, Generic[Ticks]):
    """Sums over a stretch of launches, and the lines whose maximum is its end, counted from its first launch.

    Lines come in the order of their launches: each has less attention still to come than the one before it.
    """

    cpu: int
    gpu: Ticks
    full: int
    window: int
    critical: tuple[Line[Ticks], ...]


def launch_totals(stretch: Iterable[tuple[int, Sequence[Launch]]]) -> LaunchTotals[IntArray]:
    """Totals of a stretch, given as (repeat, launches) in order.

    Within a repeated group the term of a launch is linear in the number of the repetition, so that its maximum lies at
    the first or the last one. Of terms with the same attention only the latest counts.
    """
    groups = [(repeat, launches) for repeat, launches in stretch if repeat and launches]
    after = gpu_work(())
    latest: dict[tuple[int, int], IntArray] = {}
    cpu_total = sum(repeat * sum(launch.cpu for launch in launches) for repeat, launches in groups)
    before = cpu_total
    for repeat, launches in reversed(groups):
        cpu = sum(launch.cpu for launch in launches)
        once = gpu_work(launches)
        before -= repeat * cpu
        for turn in {0, repeat - 1}:
            for base, full, window in _terms(launches, before + turn * cpu, _add(after, once, repeat - 1 - turn)):
                latest[full, window] = np.maximum(base, latest.get((full, window), base))
        after = _add(after, once, repeat)
    lines = (Line(latest[attention], *attention) for attention in sorted(latest, reverse=True))
    return LaunchTotals(cpu_total, *after, critical=tuple(lines))


def totals_of_one(totals: LaunchTotals[IntArray], index: int, least: tuple[int, int]) -> LaunchTotals[int]:
    """Totals for one of the row counts, with the lines that can be the maximum.

    `least`: the shortest attention of a full and of a window layer. A line that is not above the earlier ones there
    never will be, as they rise faster.
    """
    cpu, gpu, full, window, lines = totals
    least_full, least_window = least
    critical: list[Line[int]] = []
    highest = -1
    for bases, more_full, more_window in lines:
        base = bases.item(index)
        height = base + more_full * least_full + more_window * least_window
        if height > highest:
            highest = height
            critical.append(Line(base, more_full, more_window))
    return LaunchTotals(cpu, gpu.item(index), full, window, tuple(critical))


def gpu_work(launches: Iterable[Launch]) -> Line[IntArray]:
    """GPU work of some launches together."""
    work = Line(_NO_TICKS, 0, 0)
    for launch in launches:
        work = Line(work.base + launch.gpu, work.full + launch.full, work.window + launch.window)
    return work


def _add(work: Line[IntArray], more: Line[IntArray], times: int) -> Line[IntArray]:
    return Line(work.base + times * more.base, work.full + times * more.full, work.window + times * more.window)


def _terms(launches: Sequence[Launch], start: int, rest: Line[IntArray]) -> Iterator[Line[IntArray]]:
    """Of each launch, the last first: its end on the CPU plus the GPU work from it on."""
    end = start + sum(launch.cpu for launch in launches)
    base, full, window = rest
    for launch in reversed(launches):
        base, full, window = base + launch.gpu, full + launch.full, window + launch.window
        yield Line(end + base, full, window)
        end -= launch.cpu
