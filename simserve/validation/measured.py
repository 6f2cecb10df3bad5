"""Measured serving runs as rows of a table: what was served, under which load, and what the clients saw.

One row per run, empty cells for what its source does not state. Latencies are milliseconds, rates per second, as the
names of the columns say.
"""

import csv
import gzip
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simserve.spec.errors import ScenarioError

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
TIMED = ("ttft", "tpot", "e2e")
"""Latencies as the columns name them."""
THROUGHPUTS = ("req_tput_rps", "output_tput_tok_s", "total_tput_tok_s")
METRICS = (
    *(f"{latency}_{statistic}_ms" for latency in TIMED for statistic in STATISTICS),
    *THROUGHPUTS,
)
"""Columns that are compared."""
REQUIRED = ("id", "gpu", "model", "engine", "engine_version", "tp", "arrival_process", "isl_mean_tok", "osl_mean_tok")


@dataclass(frozen=True)
class MeasuredRun:
    """One row: its cells as text, and the measured values by column."""

    cells: Mapping[str, str]
    measured: Mapping[str, float]
    folder: Path = field(default=Path(), compare=False)
    """Where the table lies: per-request lists are looked for beside it."""

    @property
    def name(self) -> str:
        """Its id."""
        return self.cells["id"]

    def text(self, column: str) -> str:
        """Cell, or "" where the source states nothing."""
        return self.cells.get(column, "")

    def number(self, column: str) -> float | None:
        """Cell as a number, None where the source states nothing.

        Raises:
            ScenarioError: the cell holds something else.
        """
        return _number(self.text(column), f"row {self.name}: {column}")

    def count(self, column: str) -> int | None:
        """Cell as a whole number."""
        value = self.number(column)
        return None if value is None else round(value)

    def without(self, columns: Collection[str]) -> "MeasuredRun":
        """The row with those cells empty."""
        return replace(self, cells={**self.cells, **dict.fromkeys(columns, "")}) if columns else self

    def numbers_in(self, column: str) -> list[float]:
        """All numbers that a cell mentions."""
        return [float(each) for each in re.findall(r"\d+(?:\.\d+)?", self.text(column))]


def read_measured(path: Path) -> list[MeasuredRun]:
    """Rows of a table (CSV, plain or gzipped).

    Raises:
        ScenarioError: the file cannot be read, or a column that every run needs is missing.
    """
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
            if missing:
                raise ScenarioError(f"{path}: has no column {', '.join(missing)}; expected a table of measured runs")
            return [_run(cells, path, reader.line_num) for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: cannot be read as a table: {getattr(error, 'strerror', None) or error}") from None


def _run(cells: Mapping[Any, Any], path: Path, line: int) -> MeasuredRun:
    if None in cells or None in cells.values():
        raise ScenarioError(f"{path}, line {line}: has not as many fields as the header")
    texts = {str(name): str(cell).strip() for name, cell in cells.items()}
    values = {name: _number(texts.get(name, ""), f"{path}, line {line}: {name}") for name in METRICS}
    return MeasuredRun(texts, {name: value for name, value in values.items() if value}, path.parent)


def _number(text: str, place: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f"{place}: expected a number, got {text!r}") from None
