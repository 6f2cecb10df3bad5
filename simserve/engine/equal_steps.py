"""Runs of equal steps in closed form: when each of them ends, without taking them one by one.

While nobody comes or goes, a step of n decodes reads n tokens of context more than the one before, and its cost is
linear in the context: the ends of the steps are a quadratic progression in integers, the same to the tick as stepping.

The classes are spelled out, not named tuples: compiled, they are native then.
"""

from math import isqrt
from typing import final

from simserve.cost.step import DecodeCost


@final
class Progression:
    """`first`, then growing by `gap`, `gap + growth`, `gap + 2 growth`, ...: integers, nothing decreasing."""

    __slots__ = ("first", "gap", "growth")

    def __init__(self, first: int, gap: int, growth: int) -> None:
        self.first = first
        self.gap = gap
        self.growth = growth

    def at(self, index: int) -> int:
        """The value at `index`, counted from 0."""
        return self.first + index * self.gap + index * (index - 1) // 2 * self.growth

    def first_reaching(self, value: int) -> int:
        """The smallest index, from 0, at which `value` is reached; `gap` must be positive."""
        missing = value - self.first
        if missing <= 0:
            return 0
        if not self.growth:
            return -(-missing // self.gap)
        slope = 2 * self.gap - self.growth
        index = max(0, (isqrt(slope * slope + 8 * self.growth * missing) - slope) // (2 * self.growth) - 1)
        while self.at(index) < value:
            index += 1
        return index


@final
class Batch:
    """The decodes of the first of some equal steps: how many, the context they read in it, and what they cost."""

    __slots__ = ("context", "cost", "num_decodes")

    def __init__(self, num_decodes: int, context: int, cost: DecodeCost) -> None:
        self.num_decodes = num_decodes
        self.context = context
        self.cost = cost


@final
class EqualSteps:
    """Up to `num_steps` pure-decode steps in a row, the first decided at `start`.

    Counting from 0, the tokens of step `i` are known at `tokens.at(i)` (of the last one taken, if scheduling is
    asynchronous, only the step after it decides), the GPU is done at `ends.at(i)`, and the next step is decided at
    `boundaries.at(i)`. `gpu.at(n)` is the GPU time of the first `n` steps.
    """

    __slots__ = ("batch", "boundaries", "ends", "gpu", "num_steps", "start", "tokens")

    def __init__(  # noqa: PLR0917 (made for each run of equal steps)
        self,
        num_steps: int,
        start: int,
        batch: Batch,
        boundaries: Progression,
        tokens: Progression,
        ends: Progression,
        gpu: Progression,
    ) -> None:
        self.num_steps = num_steps
        self.start = start
        self.batch = batch
        self.boundaries = boundaries
        self.tokens = tokens
        self.ends = ends
        self.gpu = gpu

    def decided(self, index: int) -> int:
        """When step `index` is decided."""
        return self.boundaries.at(index - 1) if index else self.start

    def boundary_reaching(self, at: int) -> int:
        """The first tick, not before `at`, at which a step is decided."""
        return self.start if at <= self.start else self.boundaries.at(self.boundaries.first_reaching(at))

    def steps_before(self, at: int) -> int:
        """How many of the steps are decided before `at`."""
        return 0 if at <= self.start else min(self.num_steps, self.boundaries.first_reaching(at) + 1)

    def row(self, first: int, stop: int, counts: tuple[int, int], num_free: int) -> list[int]:
        """The steps `first` to `stop - 1` as a row of the step log; `counts` are those running and waiting."""
        num_steps, tokens, gpu, batch = stop - first, self.tokens, self.gpu, self.batch
        num_decodes, context, cost = batch.num_decodes, batch.context, batch.cost
        gap, growth = (tokens.gap + first * tokens.growth, tokens.growth) if num_steps > 1 else (0, 0)
        return [
            num_steps,
            self.decided(first),
            self.ends.at(stop - 1),
            tokens.at(first),
            gap,
            growth,
            0,
            num_decodes,
            context + first * num_decodes,
            *counts,
            num_free,
            0,
            gpu.at(stop) - gpu.at(first),
            cost.cpu * num_steps,
            cost.padded,
        ]


def equal_steps(batch: Batch, num_steps: int, ready: int, end: int, update: int | None) -> EqualSteps | None:
    """The steps that follow, at most `num_steps`, or None if their times have no closed form from here.

    `ready`: when the first of them is decided. `end`: when the GPU finishes the step before it. `update`: None for
    synchronous scheduling. Asynchronous: E_k = max(E_{k-1} + gpu, A_k + latency) and
    A_{k+1} = max(A_k + cpu, E_{k-1} + update), which is closed where the GPU, or where the host, sets the pace
    throughout.
    """
    num_decodes, context, cost = batch.num_decodes, batch.context, batch.cost
    for piece in cost.pieces:
        if context <= piece.until:
            break
    num_steps = min(num_steps, (piece.until - context) // num_decodes + 1)
    gpu = piece.gpu_base + piece.gpu_slope * context
    latency = piece.latency_base + piece.latency_slope * context
    gpu_growth, latency_growth = piece.gpu_slope * num_decodes, piece.latency_slope * num_decodes
    gpu_sum = Progression(0, gpu, gpu_growth)
    if update is None:
        ends = Progression(ready + latency, latency + latency_growth, latency_growth)
        return EqualSteps(num_steps, ready, batch, ends, ends, ends, gpu_sum)
    lead = max(latency - gpu, cost.cpu)
    if ready + lead <= end and update + lead <= gpu and latency_growth <= gpu_growth:
        boundaries = Progression(end + update, gpu, gpu_growth)
        ends = Progression(end + gpu, gpu + gpu_growth, gpu_growth)
        return EqualSteps(num_steps, ready, batch, boundaries, ends, ends, gpu_sum)
    cpu = cost.cpu
    if end + gpu <= ready + latency and end + update <= ready + cpu:
        num_steps = min(
            num_steps, _steps_below(gpu, gpu_growth, cpu), _steps_below(latency, latency_growth, 2 * cpu - update)
        )
        boundaries = Progression(ready + cpu, cpu, 0)
        tokens = Progression(ready + 2 * cpu, cpu, 0)
        ends = Progression(ready + latency, cpu + latency_growth, 0)
        return EqualSteps(num_steps, ready, batch, boundaries, tokens, ends, gpu_sum)
    return None


def _steps_below(first: int, growth: int, limit: int) -> int:
    """How many of `first`, `first + growth`, ... are at most `limit`."""
    if first > limit:
        return 0
    return (limit - first) // growth + 1 if growth else 1 << 62
