"""What a GPU did, written down as it happens: for timelines; a simulation of many steps leaves it away."""

from collections.abc import Iterable

from simserve.cost.operators import Kernel


class Trace:
    """Spans (what, first tick, last tick) of CPU, stream and copies, and the use of HBM bandwidth.

    `levels` are (tick, bytes per second of each that moves bytes) from that tick on.
    """

    def __init__(self) -> None:
        self.cpu: list[tuple[str, int, int]] = []
        self.stream: list[tuple[Kernel, int, int]] = []
        self.copies: list[tuple[Kernel, int, int]] = []
        self.levels: list[tuple[int, dict[str, float]]] = []

    def level(self, at: int, rates: Iterable[tuple[str, float]]) -> None:
        """From tick `at` on bytes move at these rates; what was said of the same tick before does not count."""
        if self.levels and self.levels[-1][0] == at:
            self.levels.pop()
        self.levels.append((at, dict(rates)))
