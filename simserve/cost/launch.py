"""How the kernels of a step reach the GPU: one by one, in CUDA graphs cut at the attention, or in one graph.

The CPU launches ahead of the GPU. A kernel starts when its launch is done and its predecessor has ended, so that a
step ends at the maximum, over its launches, of the launch's end plus all GPU work from there on (max-plus). Every such
term is linear in the time of one attention kernel, which is all that changes while a batch decodes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class GraphMode(Enum):
    """What runs a step. `FULL`: one graph holds the model; `PIECEWISE`: graphs between attentions; `NONE`: no graph."""

    FULL = "full"
    PIECEWISE = "piecewise"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class GraphPolicy:
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


class Launch(NamedTuple):
    """One launch: CPU ticks, and GPU ticks of the kernels it starts.

    The GPU ticks are `gpu`, plus `full` times the attention of a full layer, plus `window` times that of a window
    layer, both known only with the batch.
    """

    name: str
    cpu: int
    gpu: int
    full: int = 0
    window: int = 0


class Line(NamedTuple):
    """`base + full * x + window * y` ticks, x and y the attention of one full and of one window layer."""

    base: int
    full: int
    window: int


@dataclass(frozen=True, slots=True)
class LaunchTotals:
    """Sums over a stretch of launches, and the lines whose maximum is its end, counted from its first launch."""

    cpu: int
    gpu: int
    full: int
    window: int
    critical: tuple[Line, ...]


def launch_totals(stretch: Iterable[tuple[int, Sequence[Launch]]]) -> LaunchTotals:
    """Totals of a stretch, given as (repeat, launches) in order.

    Within a repeated group the term of a launch is linear in the number of the repetition, so that its maximum lies at
    the first or the last one.
    """
    groups = [(repeat, launches) for repeat, launches in stretch if repeat and launches]
    after = Line(0, 0, 0)
    lines: list[Line] = []
    cpu_total = sum(repeat * sum(launch.cpu for launch in launches) for repeat, launches in groups)
    before = cpu_total
    for repeat, launches in reversed(groups):
        cpu = sum(launch.cpu for launch in launches)
        once = gpu_work(launches)
        before -= repeat * cpu
        for turn in {0, repeat - 1}:
            rest = Line(*(a + (repeat - 1 - turn) * b for a, b in zip(after, once, strict=True)))
            lines += _terms(launches, before + turn * cpu, rest)
        after = Line(*(a + repeat * b for a, b in zip(after, once, strict=True)))
    return LaunchTotals(cpu_total, *after, critical=_undominated(lines))


def gpu_work(launches: Iterable[Launch]) -> Line:
    """GPU work of some launches together."""
    base = full = window = 0
    for launch in launches:
        base, full, window = base + launch.gpu, full + launch.full, window + launch.window
    return Line(base, full, window)


def _terms(launches: Sequence[Launch], start: int, rest: Line) -> list[Line]:
    """Of each launch: its end on the CPU plus the GPU work from it on."""
    ends: list[int] = []
    for launch in launches:
        start += launch.cpu
        ends.append(start)
    base, full, window = rest
    terms: list[Line] = []
    for launch, end in zip(reversed(launches), reversed(ends), strict=True):
        base, full, window = base + launch.gpu, full + launch.full, window + launch.window
        terms.append(Line(end + base, full, window))
    return terms


def _undominated(lines: list[Line]) -> tuple[Line, ...]:
    """Lines that can be the maximum for some non-negative x and y, those of most attention first."""
    kept: list[Line] = []
    for line in sorted(set(lines), key=lambda each: (each.full, each.window, each.base), reverse=True):
        if not any(k.full >= line.full and k.window >= line.window and k.base >= line.base for k in kept):
            kept.append(line)
    return tuple(kept)
