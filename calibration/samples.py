"""Raw samples of a calibration: one line each, appended as it is taken, so that an interrupted one can go on."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from calibration.points import Chunks, Point
from simserve.spec.errors import ScenarioError

FIELDS = ("pass", "point", "kind", "held_out", "decodes", "chunks", "graph", "device", "total")
HEAD = "# samples of: "


class Sample(NamedTuple):
    """A step that was executed: its point, the rows of its graph (0: none), seconds on the device and in all."""

    number: int
    """Pass over all points."""
    place: int
    """Number of the point."""
    point: Point
    graph: int
    device: float
    total: float


class SampleFile:
    """A CSV file of samples; `subject` says of what, in one line."""

    def __init__(self, path: Path, subject: str) -> None:
        self.path = path
        self._subject = subject

    def resume(self) -> list[Sample]:
        """What an earlier call left here; begins the file where there is none.

        Raises:
            ScenarioError: it holds samples of something else.
        """
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(f"{HEAD}{self._subject}\n{','.join(FIELDS)}\n", encoding="utf-8")
            return []
        with self.path.open(encoding="utf-8") as file:
            subject = file.readline().rstrip("\n")
        if subject != HEAD + self._subject:
            raise ScenarioError(
                f"{self.path}: {subject.removeprefix('# ')}, not of {self._subject}; remove it, or choose another -o"
            )
        return read_samples(self.path)

    def append(self, sample: Sample) -> None:
        """One more sample, safe once this returns."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(_as_row(sample))


def read_samples(path: Path) -> list[Sample]:
    """All whole samples of a file; a last line that was cut off is dropped."""
    lines = path.read_text(encoding="utf-8").split("\n")[2:-1]
    return [_from_row(row) for row in csv.reader(lines)]


def rounded(seconds: float) -> float:
    """As it is written: four digits, far finer than any clock's noise."""
    return float(f"{seconds:.4g}")


def _as_row(sample: Sample) -> Iterable[object]:
    number, index, (kind, held_out, decodes, chunks), graph, device, total = sample
    texts = " ".join(map(str, decodes)), " ".join(f"{new}@{history}" for new, history in chunks)
    return number, index, kind, int(held_out), *texts, graph, device, total


def _from_row(row: list[str]) -> Sample:
    number, index, kind, held_out, decodes, chunks, graph, device, total = row
    pairs: Chunks = tuple((int(new), int(history)) for new, history in (each.split("@") for each in chunks.split()))
    point = Point(kind, held_out == "1", tuple(map(int, decodes.split())), pairs)
    return Sample(int(number), int(index), point, int(graph), float(device), float(total))
