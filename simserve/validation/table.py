"""A table of measured runs against the simulation of each: predictions, errors, and the file that holds them."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from simserve.spec.errors import ScenarioError
from simserve.validation.errors import Error, Group, errors_of, summary_of
from simserve.validation.host_fit import front_ends_without
from simserve.validation.measured import MeasuredRun, read_measured
from simserve.validation.prediction import Prediction, predict

_TOGETHER = 4
"""Rows that a process takes at once."""


@dataclass(frozen=True)
class TableReport:
    """All that a table of measured runs says of the simulator."""

    predictions: tuple[Prediction, ...]
    errors: tuple[Error, ...]
    summary: tuple[Group, ...]

    @classmethod
    def of(cls, predictions: Sequence[Prediction]) -> "TableReport":
        """Report of some predictions."""
        errors = errors_of(predictions)
        return cls(tuple(predictions), tuple(errors), tuple(summary_of(errors)))

    @property
    def skipped(self) -> list[Prediction]:
        """Rows that could not be simulated, each with its reason."""
        return [each for each in self.predictions if each.reason]

    def as_dict(self) -> dict[str, object]:
        """`rows`: one entry per measured value; `skipped`: rows with the reason; `summary`: by group and metric."""
        return {
            "rows": [error.as_dict() for error in self.errors],
            "skipped": [{"id": each.run.name, "reason": each.reason} for each in self.skipped],
            "summary": [group._asdict() for group in self.summary],
        }


def chosen_rows(path: Path, tier: str | None = None, limit: int | None = None) -> list[MeasuredRun]:
    """Rows of a table, of one tier if one is named, the first `limit` of them.

    Raises:
        ScenarioError: the table cannot be read, or no row is left.
    """
    rows = [run for run in read_measured(path) if tier is None or run.text("tier") == tier][:limit]
    if not rows:
        raise ScenarioError(f"{path}: has no row" + (f" of tier {tier}" if tier else ""))
    return rows


Progress = Callable[[float], None]


def validate_table(rows: Sequence[MeasuredRun], executor: Executor, progress: Progress = lambda _: None) -> TableReport:
    """Simulate each row, wherever the executor runs it; `progress` is told the share of rows that are done."""
    return TableReport.of(_predictions(rows, [None] * len(rows), executor, progress))


def left_out_table(
    predictions: Sequence[Prediction], executor: Executor, progress: Progress = lambda _: None
) -> TableReport:
    """The same rows again, each with the front end that the rows of all other (GPU, model, TP) give."""
    rows = [each.run for each in predictions]
    return TableReport.of(_predictions(rows, front_ends_without(predictions), executor, progress))


def _predictions(
    rows: Sequence[MeasuredRun],
    hosts: Sequence[Mapping[str, float] | None],
    executor: Executor,
    progress: Progress,
) -> list[Prediction]:
    predictions: list[Prediction] = []
    for prediction in executor.map(predict, rows, hosts, chunksize=_TOGETHER):
        predictions.append(prediction)
        progress(len(predictions) / len(rows))
    return predictions


def write_json(report: TableReport, path: Path) -> None:
    """Write the report as JSON, whole or not at all."""
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(json.dumps(report.as_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    aside.replace(path)
