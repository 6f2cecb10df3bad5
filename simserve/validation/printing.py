"""The report of a table of measured runs as a person reads it: text tables, and pictures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simserve.validation.errors import GROUPS, NOISE_FLOOR, Error, Group, false_saturations, running_at_once
from simserve.validation.host_fit import front_ends
from simserve.validation.measured import METRICS
from simserve.validation.table import TableReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PICTURED = {
    "ttft_mean_ms": "mean TTFT, ms",
    "tpot_mean_ms": "mean TPOT, ms",
    "e2e_mean_ms": "mean E2E, ms",
    "output_tput_tok_s": "output tokens/s",
}
ROW_METRICS = ("ttft_mean_ms", "ttft_p99_ms", "tpot_mean_ms", "e2e_mean_ms", "e2e_p99_ms", "output_tput_tok_s")
LARGE = 0.15
"""Errors beyond this are marked in the table of rows."""
_HEADINGS = ("metric", "n", "median", "mean", "bias", "roofline", "its bias", "noise")


def print_report(report: TableReport, console: "Console") -> None:
    """Rows, summary by group, assumptions and skipped rows."""
    _print_rows(report, console)
    for by in GROUPS:
        _print_groups(by, [group for group in report.summary if group.by == by], console)
    saturated = false_saturations(report.errors)
    console.print(f"false saturation (mean TTFT off by 10x or more): {len(saturated)} rows")
    for error in saturated:
        console.print(f"  {error.prediction.run.name}: {error.predicted:.4g} ms, measured {error.measured:.4g} ms")
    _print_assumed(report, console)
    console.print(f"not simulated: {len(report.skipped)} rows")
    for each in report.skipped:
        console.print(f"  {each.run.name}: {each.reason}", markup=False)


def print_left_out(report: TableReport, again: TableReport, console: "Console") -> None:
    """Host times that the rows give, and the errors with those that the rows of other groups give."""
    table = _table("Front end per request, from the rows under a light load", ["engine version", "GPUs", "ms", "rows"])
    for (stack, gpus), estimate in sorted(front_ends(report.predictions).items()):
        table.add_row(stack, gpus, f"{estimate.seconds * 1e3:.1f}", str(estimate.rows))
    console.print(table)
    console.print("Each (GPU, model, TP) predicted with the host times that the others give:")
    for by in ("all", "tier"):
        _print_groups(by, [group for group in again.summary if group.by == by], console)


def _print_rows(report: TableReport, console: "Console") -> None:
    found: dict[str, dict[str, Error]] = {}
    for error in report.errors:
        found.setdefault(error.prediction.run.name, {})[error.metric] = error
    metrics = [metric for metric in ROW_METRICS if any(metric in errors for errors in found.values())]
    table = _table("Predicted / measured (error)", ["row", *metrics])
    for name, errors in found.items():
        table.add_row(name, *(_cell(errors.get(metric)) for metric in metrics))
    console.print(table)


def _cell(error: Error | None) -> str:
    if error is None:
        return ""
    mark = " *" if abs(error.error) > LARGE else ""
    return f"{error.predicted:.4g} / {error.measured:.4g} ({100 * error.error:+.0f} %){mark}"


def _print_groups(by: str, groups: Sequence[Group], console: "Console") -> None:
    table = _table(f"Errors by {by}" if by != "all" else "All rows", [by, *_HEADINGS])
    last = ""
    for group in sorted(groups, key=lambda each: (each.value, METRICS.index(each.metric))):
        floor = NOISE_FLOOR.get(group.metric)
        table.add_row(
            group.value if group.value != last else "",
            group.metric,
            str(group.rows),
            _percent(group.median_abs),
            _percent(group.mean_abs),
            _percent(group.bias, sign="+"),
            _percent(group.roofline_mean_abs),
            _percent(group.roofline_bias, sign="+"),
            _percent(floor[0]) if floor else "",
        )
        last = group.value
    console.print(table)


def _percent(share: float | None, sign: str = "") -> str:
    return "" if share is None else f"{100 * share:{sign}.1f} %"


def _print_assumed(report: TableReport, console: "Console") -> None:
    counts: dict[str, int] = {}
    for prediction in report.predictions:
        for assumption in prediction.assumed:
            counts[assumption] = counts.get(assumption, 0) + 1
    console.print(f"not stated by the rows, so assumed: {len(counts)}")
    for assumption, count in sorted(counts.items(), key=lambda each: -each[1]):
        console.print(f"  {count} rows: {assumption}", markup=False)


def _table(title: str, columns: Iterable[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", overflow="fold")
    return table


def save_pictures(report: TableReport, stem: Path) -> list[Path]:
    """Write STEM.svg, STEM.png (predicted against measured) and STEM-by-load.svg, .png (error by load)."""
    from simserve.report.plots.accuracy import Point, error_by_load_plot, scatter_plot
    from simserve.report.plots.style import save_figure

    points = [
        Point(error.metric, run.text("gpu"), running_at_once(run), error.measured, error.predicted)
        for error in report.errors
        for run in [error.prediction.run]
    ]
    shown = {metric: title for metric, title in PICTURED.items() if any(point.metric == metric for point in points)}
    paths = [*save_figure(scatter_plot(points, shown), stem)]
    return [*paths, *save_figure(error_by_load_plot(points, shown), stem.with_name(f"{stem.name}-by-load"))]
