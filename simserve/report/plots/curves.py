"""Pictures of many runs: latency against load, and throughput of a GPU against speed for a user."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simserve.report.metric import Metric
from simserve.report.metrics import METRICS
from simserve.report.plots.style import (
    BLUE,
    CYCLE,
    FAINT,
    GREY,
    PURPLE,
    RED,
    figure,
    legend_below,
    nothing_to_show,
    plain_log_axis,
    styled,
)
from simserve.report.saturation import OVERLOADED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PERCENTILES: dict[str, dict[str, Any]] = {
    "p50": {"color": BLUE, "linewidth": 1.2},
    "p95": {"color": RED, "linewidth": 2.0},
    "p99": {"color": PURPLE, "linewidth": 1.2, "linestyle": "--"},
}
LINES: dict[str, Any] = {"p50": ":", "p95": "-", "p99": "--"}
"""Percentile by line where colour tells something else."""
APART = 0.03
"""Share of an axis by which two numbered points differ at least."""
PANELS = ("ttft", "tpot")


def rows_of(points: "pd.DataFrame | Sequence[Mapping[str, Any]]") -> list[dict[str, Any]]:
    """The rows that hold results, whatever kind of table they come in; a run that failed has none."""
    table = points.to_dict("records") if hasattr(points, "to_dict") else points
    rows = [{str(key): value for key, value in row.items()} for row in table]
    return [row for row in rows if row.get("completed") is not None and not _missing(row["completed"])]


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


@styled
def latency_throughput_plot(
    points: "pd.DataFrame | Sequence[Mapping[str, Any]]",
    x: str = "request_rate",
    *,
    by: str | None = None,
    slo: Mapping[str, float] | None = None,
    capacity: float | None = None,
    x_label: str = "request rate (requests/s)",
) -> "Figure":
    """TTFT and TPOT at p50, p95 and p99 against load, on logarithmic axes.

    `x` is the column of the load; `by` a column whose values give a curve each (then colour tells them, and the line
    the percentile). `slo` gives limits in seconds (`ttft`, `tpot`), `capacity` the largest load that meets them. Of
    several runs at one load the median is drawn, and at p95 a band from least to most. Overloaded runs are hollow.
    """
    rows = rows_of(points)
    fig = figure(7.2, 5.6)
    panels = fig.subplots(2, 1, sharex=True)
    for axes, metric in zip(panels, (METRICS[key] for key in PANELS), strict=True):
        if not any(not _missing(row.get(metric.key_of("p50"))) for row in rows):
            nothing_to_show(axes, f"no run has a {metric.name}")
            continue
        axes.set(yscale="log", ylabel=metric.axis, title=metric.title)
        _draw_percentiles(axes, rows, x, metric, by)
        _draw_limit(axes, (slo or {}).get(metric.key))
        if capacity is not None:
            axes.axvline(capacity, color=FAINT, linestyle=":", linewidth=1.3)
        plain_log_axis(axes.yaxis)
    if capacity is not None:
        _note(
            panels[0], f"capacity {capacity:.3g}", (capacity, 1.0), ("data", "axes fraction"), ha="center", va="bottom"
        )
    panels[1].set_xlabel(x_label)
    legend_below(fig, _legend(rows, by))
    return fig


def _legend(rows: list[dict[str, Any]], by: str | None) -> list["Line2D"]:
    """What colours, lines and hollow markers mean."""
    from matplotlib.lines import Line2D

    if by is None:
        handles = [Line2D([], [], label=name, **look) for name, look in PERCENTILES.items()]
    else:
        name = by.rpartition(".")[2]
        handles = [Line2D([], [], color=colour, marker="o", markersize=4, label=f"{name} {group}")
                   for group, colour in zip(_groups(rows, by), itertools.cycle(CYCLE), strict=False)]  # fmt: skip
        handles += [Line2D([], [], color=FAINT, linestyle=line, label=name) for name, line in LINES.items()]
    if any(row.get("saturation") == OVERLOADED for row in rows):
        hollow = {"color": FAINT, "marker": "o", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}
        handles.append(Line2D([], [], label="overloaded", **hollow))  # type: ignore[arg-type]
    return handles


def _groups(rows: list[dict[str, Any]], by: str | None) -> list[Any]:
    return sorted({row[by] for row in rows}, key=lambda value: (isinstance(value, str), value)) if by else [None]


def _draw_percentiles(axes: "Axes", rows: list[dict[str, Any]], x: str, metric: Metric, by: str | None) -> None:
    for group, colour in zip(_groups(rows, by), itertools.cycle(CYCLE), strict=False):
        chosen = [row for row in rows if by is None or row[by] == group]
        for percentile, look in PERCENTILES.items():
            told_by = {} if by is None else {"color": colour, "linestyle": LINES[percentile]}
            band = percentile == "p95"
            _draw_curve(axes, chosen, x, metric.key_of(percentile), band, **(look | told_by))


def _draw_curve(axes: "Axes", rows: list[dict[str, Any]], x: str, y: str, band: bool, **look: Any) -> None:
    values: dict[float, list[float]] = {}
    for row in rows:
        if not _missing(row.get(y)) and row[y] > 0:
            values.setdefault(float(row[x]), []).append(float(row[y]))
    loads = sorted(values)
    if not loads:
        return
    overloaded = {float(row[x]) for row in rows if row.get("saturation") == OVERLOADED}
    faces = ["none" if load in overloaded else look["color"] for load in loads]
    middle = [float(np.median(values[load])) for load in loads]
    axes.plot(loads, middle, **look)
    axes.scatter(loads, middle, s=18, facecolors=faces, edgecolors=look["color"], linewidths=1.1, zorder=3)
    if band and any(len(found) > 1 for found in values.values()):
        low, high = ([bound(values[load]) for load in loads] for bound in (min, max))
        axes.fill_between(loads, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _draw_limit(axes: "Axes", limit: float | None) -> None:
    if limit is None:
        return
    axes.axhline(limit * 1e3, color=FAINT, linestyle=(0, (6, 3)), linewidth=1.1)
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, limit * 1e3 * (high / low) ** 0.1))
    _note(axes, f"SLO {limit * 1e3:g} ms", (0.0, limit * 1e3), ("axes fraction", "data"), ha="left", va="bottom")


def _note(axes: "Axes", text: str, place: tuple[float, float], coordinates: tuple[str, str], **look: Any) -> None:
    """A small remark beside a line."""
    offset = (4 if look["ha"] == "left" else -4, 3 if look["va"] == "bottom" else -4)
    axes.annotate(
        text, place, xycoords=coordinates, xytext=offset, textcoords="offset points", color=FAINT, fontsize=8, **look
    )


@styled
def pareto_plot(points: "pd.DataFrame | Sequence[Mapping[str, Any]]", label: Sequence[str] = ()) -> "Figure":
    """Output tokens/s a GPU against output tokens/s a user sees (1 / mean TPOT), with the frontier of the best.

    Up and to the right is better. `label` names the columns that tell the runs of the frontier apart.
    """
    rows = [row for row in rows_of(points) if not _missing(row.get("tokens_per_s_per_user"))]
    fig = figure(7.2, 4.6)
    axes = fig.subplots()
    axes.set(
        xlabel="speed for a user (output tokens/s, 1 / mean TPOT)",
        ylabel="throughput of a GPU (output tokens/s)",
        title="Throughput against speed",
    )
    if not rows:
        nothing_to_show(axes, "no run has a TPOT")
        return fig
    names = [", ".join(f"{key.rpartition('.')[2]} {_shown(row[key])}" for key in label) for row in rows]
    x, y = (np.array([float(row[f"tokens_per_s_per_{of}"]) for row in rows]) for of in ("user", "gpu"))
    best = frontier(x, y)
    axes.scatter(x, y, s=22, color=GREY, zorder=2, label="runs")
    axes.plot(x[best], y[best], color=BLUE, marker="o", markersize=5, zorder=3, label="best trades")
    axes.set_xlim(0, float(x.max()) * 1.08)
    axes.set_ylim(0, float(y.max()) * 1.1)
    if label:
        _number_points(axes, [(x[index], y[index]) for index in best], [names[index] for index in best])
    return fig


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number_points(axes: "Axes", places: list[tuple[float, float]], names: list[str]) -> None:
    """Numbers at the points, and beside the axes what they stand for; a point that all but covers another has none."""
    from matplotlib.lines import Line2D

    corner = np.array([axes.get_xlim()[1], axes.get_ylim()[1]])
    numbered: list[int] = []
    for index, place in enumerate(places):
        distances = [float(np.max(np.abs(np.subtract(place, places[other]) / corner))) for other in numbered]
        if min(distances, default=1.0) > APART:
            numbered.append(index)
    handles = []
    for number, index in enumerate(numbered, 1):
        axes.annotate(str(number), places[index], xytext=(5, 4), textcoords="offset points", fontsize=8, color=BLUE)
        handles.append(Line2D([], [], linestyle="none", label=f"{number}   {names[index]}"))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=0, handletextpad=0)


def frontier(x: "np.ndarray[Any, Any]", y: "np.ndarray[Any, Any]") -> list[int]:
    """Points that no other one beats in both, from the least x on."""
    order = np.lexsort((-y, -x))
    best: list[int] = []
    for index in order.tolist():
        if not best or y[index] > y[best[-1]]:
            best.append(index)
    return best[::-1]
