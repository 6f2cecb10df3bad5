"""The pictures of a sweep: latency against load where a load was varied, throughput against speed in any case."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simserve.planning.sweep import Axis, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simserve.spec.slo import SloSpec

LOADS = {
    "workload.arrivals.rate": ("workload.arrivals.rate", "arrival rate (requests/s)"),
    "workload.trace.speedup": ("offered_rate", "request rate (requests/s)"),
    "workload.trace.rate": ("offered_rate", "request rate (requests/s)"),
    "workload.arrivals.users": ("workload.arrivals.users", "users"),
}
"""Key that varies the load -> column of the rows to draw against, and its name on the axis."""


def sweep_pictures(rows: Sequence[Row], grid: Sequence[Axis], slo: "SloSpec | None") -> dict[str, "Figure"]:
    """Name of each picture that the axes of a sweep allow, and the picture."""
    from simserve.report.plots import latency_throughput_plot, pareto_plot

    varied = [axis.key for axis in grid if len(axis.values) > 1]
    load = next((key for key in varied if key in LOADS), None)
    others = [key for key in varied if key != load]
    pictures = {"pareto": pareto_plot(rows, varied)}
    if load is not None:
        column, label = LOADS[load]
        table, by = _told_apart(rows, others)
        limits = slo.limits if slo else {}
        pictures["latency_throughput"] = latency_throughput_plot(table, column, by=by, slo=limits, x_label=label)
    return pictures


def _told_apart(rows: Sequence[Row], keys: Sequence[str]) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Rows, and the one column that tells the curves apart: a key, or several joined."""
    if len(keys) < 2:
        return rows, keys[0] if keys else None
    name = ", ".join(key.rpartition(".")[2] for key in keys)
    return [row | {name: ", ".join(str(row[key]) for key in keys)} for row in rows], name


def write_pictures(rows: Sequence[Row], grid: Sequence[Axis], slo: "SloSpec | None", out: Path) -> list[Path]:
    """Draw and write the pictures into a folder; the files that were written."""
    from simserve.report.plots import save_figure

    written: list[Path] = []
    for name, picture in sweep_pictures(rows, grid, slo).items():
        written += save_figure(picture, out / name)
    return written
