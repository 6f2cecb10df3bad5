"""What a GPU did, written down as it happens: for timelines; a simulation of many steps leaves it away."""

from typing import Final

from simserve.cost.operators import Kernel

COPY: Final = "copy"
"""Group of what is copied beside the stream."""


class Trace:
    """(what, first tick, last tick) of launches, kernels of the stream and copies, in the order in which they ended.

    `levels`: (tick, bytes per second of kernels, and of copies) from that tick on.
    """

    def __init__(self) -> None:
        self.launches: list[tuple[str, int, int]] = []
        self.kernels: list[tuple[Kernel, int, int]] = []
        self.copies: list[tuple[Kernel, int, int]] = []
        self.levels: list[tuple[int, float, float]] = []

    def level(self, at: int, kernels: float, copies: float) -> None:
        """From tick `at` on they use so much; what was said of the same tick before does not count."""
        if self.levels and self.levels[-1][0] == at:
            self.levels.pop()
        self.levels.append((at, kernels, copies))
