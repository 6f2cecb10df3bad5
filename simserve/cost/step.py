"""Time of one engine step, in ticks, as the replica asks for it.

The replica knows a step as counts: prompt chunks, decodes, tokens of context. A step cost answers with integer ticks.
A step of decodes alone is linear in its context piece by piece, so that the engine can sum any number of equal steps
in closed form and land on the very tick that stepping reaches.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from simserve.cost.unevenness import Unevenness

UNBOUNDED = 2**62
"""`until` of the last piece."""


class StepTime(NamedTuple):
    """Ticks of one step, and the CUDA graph that runs it.

    `cpu`: engine-core CPU time, host work and launches. `gpu`: sum of all kernels. `latency`: from the start of the
    step's CPU work to the end of its last kernel when the GPU is idle. `padded`: tokens of the CUDA graph, 0 without
    one.
    """

    cpu: int
    gpu: int
    latency: int
    padded: int


class Piece(NamedTuple):
    """`base + slope * context` ticks for every context up to and including `until` tokens."""

    until: int
    gpu_base: int
    gpu_slope: int
    latency_base: int
    latency_slope: int


class DecodeCost(NamedTuple):
    """A step of decodes alone, as a function of its context: the tokens whose KV it reads, summed over sequences."""

    cpu: int
    graph: bool
    padded: int
    pieces: tuple[Piece, ...]

    def at(self, context: int) -> StepTime:
        """The step at `context` tokens."""
        return StepTime(*self.ticks(context))

    def shifted(self, more: int) -> "DecodeCost":
        """The cost of a batch whose context counts as so many tokens more than it is."""
        pieces = [
            Piece(until - more, gpu + gpu_slope * more, gpu_slope, latency + latency_slope * more, latency_slope)
            for until, gpu, gpu_slope, latency, latency_slope in self.pieces
        ]
        return self._replace(pieces=tuple(pieces)) if more else self

    def ticks(self, context: int) -> tuple[int, int, int, int]:
        """`at` as a plain tuple; see `StepCost.ticks`."""
        cpu, _, padded, pieces = self
        for until, gpu_base, gpu_slope, latency_base, latency_slope in pieces:  # noqa: B007
            if context <= until:
                break
        return cpu, gpu_base + gpu_slope * context, latency_base + latency_slope * context, padded


class StepCost(Protocol):
    """What the engine needs to know of the hardware.

    `update` is the engine-core time from the end of the GPU's work to the tokens being known (asynchronous
    scheduling; a synchronous engine has it inside `cpu`). `uneven`: what decodes of unequal context take beyond equal
    ones; None where that makes no difference. Contexts are passed as those of equal decodes.
    """

    update: int

    def for_one_run(self) -> "StepCost":
        """This cost for the steps of one run: itself, unless it remembers what it was asked for its `breakdown`."""
        ...

    @property
    def uneven(self) -> Unevenness | None:
        """See the class."""
        ...

    def decode(self, num_decodes: int) -> DecodeCost:
        """Cost of a step of `num_decodes` decodes and nothing else."""
        ...

    def step(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int) -> StepTime:
        """Cost of any step.

        `chunks`: (new tokens, tokens computed before) of each prompt chunk; `context`: tokens of KV that the decodes
        read, their own included; `num_sampled`: rows through lm_head. Without chunks it equals
        `decode(num_decodes).at(context)`.
        """
        ...

    def ticks(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> tuple[int, int, int, int]:
        """The fields of `step` as a plain tuple, for the engine's loop: naming them takes a third of the time."""
        ...

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Seconds of each group of operators over a step log, given as its columns."""
        ...

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:
        """Steps of a step log whose time lies beyond the measured tables; 0 where there are none."""
        ...


class ConstantStepCost:
    """Every step takes the same time, whatever its batch: the device of queueing theory (`cost.constant_step`)."""

    update = 0
    uneven: Unevenness | None = None

    def __init__(self, ticks: int) -> None:
        self._time = StepTime(cpu=0, gpu=ticks, latency=ticks, padded=0)
        self._decode = DecodeCost(0, graph=False, padded=0, pieces=(Piece(UNBOUNDED, ticks, 0, ticks, 0),))

    def for_one_run(self) -> "ConstantStepCost":
        """Itself: it remembers nothing."""
        return self

    def decode(self, num_decodes: int) -> DecodeCost:  # noqa: ARG002
        """Cost of a step of `num_decodes` decodes."""
        return self._decode

    def step(
        self,
        chunks: Sequence[tuple[int, int]],  # noqa: ARG002
        num_decodes: int,  # noqa: ARG002
        context: int,  # noqa: ARG002
        num_sampled: int,  # noqa: ARG002
    ) -> StepTime:
        """Cost of any step."""
        return self._time

    def ticks(
        self,
        chunks: Sequence[tuple[int, int]],  # noqa: ARG002
        num_decodes: int,  # noqa: ARG002
        context: int,  # noqa: ARG002
        num_sampled: int,  # noqa: ARG002
    ) -> tuple[int, int, int, int]:
        """The same."""
        return self._time

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """All of the GPU's time, in one group."""
        return {"constant_step": float(steps["gpu_time"].sum())}

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:  # noqa: ARG002
        """None: nothing was measured."""
        return 0
