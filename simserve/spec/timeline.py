"""One engine step laid out in time: what CPU, GPU and HBM did when. It passes from the engine to the reports."""

from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Something that lasted from `start` to `end`, in seconds from the beginning of the step.

    Of kernels and copies also: bytes through HBM, FLOPs, what binds the time (memory, compute, floor, network or link);
    and of kernels the index of the launch that started it.
    """

    name: str
    start: float
    end: float
    bytes: float = 0.0
    flops: float = 0.0
    bound: str = ""
    launch: int = -1


class Level(NamedTuple):
    """From `at` (seconds) on, kernels and copies move so many bytes per second through HBM."""

    at: float
    kernels: float
    copies: float


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """A step on an idle GPU.

    `time`: from the beginning of the CPU's work to the end of the last kernel. `graph`: CUDA graph mode: full,
    piecewise or none. `hbm_bandwidth`: the peak in bytes per second. `host`: what the CPU does before and after its
    `launches`. `kernels`: in the order of the GPU's stream. `copies`: what ran beside them. `levels`: the use of HBM.
    """

    name: str
    time: float
    graph: str
    hbm_bandwidth: float
    host: tuple[Span, ...]
    launches: tuple[Span, ...]
    kernels: tuple[Span, ...]
    copies: tuple[Span, ...]
    levels: tuple[Level, ...]
