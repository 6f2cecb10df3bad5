"""The whole distribution of each latency of a run, where a table has only percentiles."""

from typing import TYPE_CHECKING

from simserve.report.metric import Metric
from simserve.report.metrics import completed, metrics_of
from simserve.report.plots.style import CYCLE, FAINT, figure, legend_below, nothing_to_show, plain_log_axis, styled
from simserve.report.question import objective_of
from simserve.report.tokens import BoolArray
from simserve.report.window import Window
from simserve.spec.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GUIDES = (0, 0.25, 0.5, 0.75, 0.95)
MAX_CLASSES = 6


@styled
def latency_cdf_plot(result: Result) -> "Figure":
    """Share of requests (of gaps for ITL) whose value is at most so much: a panel a metric, a line a class, the SLO."""
    window = Window.of(result)
    done = completed(result.requests, window.measured)
    metrics = metrics_of(result)
    lines = -(-len(metrics) // 2)
    fig = figure(7.2, 2.5 * lines)
    panels = fig.subplots(lines, 2, sharey=True)
    for spare in panels.flat[len(metrics) :]:
        spare.remove()
    groups = _groups(result, done)
    for axes, metric in zip(panels.flat, metrics, strict=False):
        found = {name: metric.sample(result, rows).distribution() for name, rows in groups.items()}
        curves = {name: curve for name, curve in found.items() if curve is not None}
        axes.set(title=metric.title, xlabel=metric.unit.symbol)
        if not curves:
            nothing_to_show(axes, "no request has one")
            continue
        for index, (name, (values, shares)) in enumerate(curves.items()):
            axes.plot(values * metric.unit.factor, shares, color=CYCLE[index], label=name)
        _draw_guides(axes, metric, result)
    for axes in panels[:, 0]:
        axes.set_ylabel("share")
    if len(groups) > 1:
        legend_below(fig, panels[0, 0].get_lines()[: len(groups)])
    return fig


def _groups(result: Result, done: BoolArray) -> dict[str, BoolArray]:
    """Requests by class; all together where there is one class, or too many to tell by colour."""
    if not 1 < len(result.class_names) <= MAX_CLASSES:
        return {"all": done}
    return {name: done & (result.requests["class_index"] == index) for index, name in enumerate(result.class_names)}


def _draw_guides(axes: "Axes", metric: Metric, result: Result) -> None:
    from matplotlib.ticker import PercentFormatter

    for limit, colour in _limits(result, metric.key).items():
        shown = limit * metric.unit.factor
        axes.axvline(shown, color=colour, linestyle=(0, (6, 3)), linewidth=1.1)
        axes.annotate(
            f"SLO {shown:g} {metric.unit.symbol}", (shown, 0), xycoords=("data", "axes fraction"), xytext=(-4, 5),
            textcoords="offset points", color=colour, fontsize=8, ha="right", rotation=90,
        )  # fmt: skip
    low, high = axes.dataLim.intervalx
    if low > 0 and high > 3 * low:
        axes.set_xscale("log")
        plain_log_axis(axes.xaxis)
    axes.set_ylim(0, 1.01)
    axes.set_yticks(GUIDES)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _limits(result: Result, key: str) -> dict[float, str]:
    """Limits on a metric in seconds, and their colours: a class's own has the colour of its curve."""
    limits: dict[float, str] = {}
    for index in range(min(len(result.class_names), MAX_CLASSES)):
        slo = objective_of(result.scenario, index)
        limit = slo.limits.get(key) if slo else None
        if limit is not None:
            limits[limit] = FAINT if slo is result.scenario.slo else CYCLE[index]
    return limits
