"""Predicted against measured: every row a point, and how the error depends on the load."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from simserve.report.plots.style import CYCLE, FAINT, GREY, INK, figure, legend_below, plain_log_axis, styled

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BAND = 0.1
MARKERS = ("o", "^", "s")
"""When the colours are used up, they come again with the next marker."""


class Point(NamedTuple):
    """One measured value and its prediction; `group` decides the colour, `load` is requests running at once."""

    metric: str
    group: str
    load: float | None
    measured: float
    predicted: float


class Look(NamedTuple):
    """How the points of a group look."""

    colour: str
    marker: str


@styled
def scatter_plot(points: Sequence[Point], titles: Mapping[str, str]) -> "Figure":
    """Predicted against measured on logarithmic axes, a panel per metric of `titles`, with a band of 10 %."""
    fig, looks = figure(3.4 * len(titles), 3.9), _looks(points)
    for axes, (metric, title) in zip(fig.subplots(1, len(titles), squeeze=False)[0], titles.items(), strict=True):
        chosen = [point for point in points if point.metric == metric]
        _scatter(axes, chosen, [(point.measured, point.predicted) for point in chosen], looks)
        _diagonal(axes, chosen)
        axes.set(xscale="log", yscale="log", title=title, xlabel="measured", ylabel="predicted")
        for axis in (axes.xaxis, axes.yaxis):
            _decades(axis)
        axes.set_aspect("equal", adjustable="datalim")
        axes.tick_params(labelsize=7)
    legend_below(fig, _handles(looks))
    return fig


@styled
def error_by_load_plot(points: Sequence[Point], titles: Mapping[str, str]) -> "Figure":
    """Relative error against the number of requests that run at once, a panel per metric of `titles`."""
    fig, looks = figure(3.4 * len(titles), 3.3), _looks(points)
    panels = fig.subplots(1, len(titles), squeeze=False, sharey=True)[0]
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        chosen = [point for point in points if point.metric == metric and point.load]
        _scatter(
            axes,
            chosen,
            [(point.load or 1.0, 100 * (point.predicted / point.measured - 1)) for point in chosen],
            looks,
        )
        axes.axhline(0, color=FAINT, linewidth=0.8)
        axes.axhspan(-100 * BAND, 100 * BAND, color=GREY, alpha=0.3, linewidth=0)
        axes.set(xscale="log", title=title, xlabel="requests running at once", ylim=(-100, 100))
        plain_log_axis(axes.xaxis)
        axes.tick_params(labelsize=7)
    panels[0].set_ylabel("error, %")
    legend_below(fig, _handles(looks))
    return fig


def _looks(points: Sequence[Point]) -> dict[str, Look]:
    looks = [Look(colour, marker) for marker in MARKERS for colour in CYCLE]
    groups = sorted({point.group for point in points})
    return {group: looks[index % len(looks)] for index, group in enumerate(groups)}


def _scatter(
    axes: "Axes", points: Sequence[Point], places: Sequence[tuple[float, float]], looks: Mapping[str, Look]
) -> None:
    for group, look in looks.items():
        xy = [place for point, place in zip(points, places, strict=True) if point.group == group]
        if xy:
            across, up = zip(*xy, strict=True)
            axes.scatter(across, up, s=9, color=look.colour, marker=look.marker, alpha=0.6, linewidths=0)


def _decades(axis: "Axis") -> None:
    """1, 10, 100, 1k, ...: latencies span five decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1e3 else f"{value / 1e3:g}k"))
    axis.set_minor_formatter(NullFormatter())


def _diagonal(axes: "Axes", points: Sequence[Point]) -> None:
    values = [value for point in points for value in (point.measured, point.predicted) if value > 0]
    if not values:
        return
    ends = [min(values), max(values)]
    axes.plot(ends, ends, color=INK, linewidth=0.8)
    low, high = ([end * (1 + sign * BAND) for end in ends] for sign in (-1, 1))
    axes.fill_between(ends, low, high, color=GREY, alpha=0.4, linewidth=0)


def _handles(looks: Mapping[str, Look]) -> "list[Artist]":
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle="", markersize=4, label=group)
        for group, look in looks.items()
    ]
