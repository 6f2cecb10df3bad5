"""The whole distribution of each latency of a run, where a table has only percentiles."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.itl import bin_edges, pool, pooled_gaps
from simserve.report.metrics import LATENCIES, completed
from simserve.report.objective import stated_limits
from simserve.report.plots.style import CYCLE, FAINT, figure, legend_below, nothing_to_show, plain_log_axis, styled
from simserve.report.question import objective_of
from simserve.report.tokens import BoolArray
from simserve.report.window import Window
from simserve.spec.result import Result
from simserve.spec.ticks import TICK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency",
}
SHARES = np.concatenate([np.linspace(0, 1, 401), [0.995, 0.999]])
SHARES.sort()
GUIDES = (0, 0.25, 0.5, 0.75, 0.95)
MAX_CLASSES = 6


@styled
def latency_cdf_plot(result: Result) -> "Figure":
    """Share of requests (of tokens for ITL) whose latency is at most so many ms, one line a class, with the SLO."""
    window = Window.of(result)
    done = completed(result.requests, window.measured)
    fig = figure(7.2, 5.0)
    panels = fig.subplots(2, 2, sharey=True)
    groups = _groups(result, done)
    for axes, (latency, title) in zip(panels.flat, PANELS.items(), strict=True):
        found = {name: _curve(result, latency, rows) for name, rows in groups.items()}
        curves = {name: curve for name, curve in found.items() if curve is not None}
        axes.set_title(title)
        if not curves:
            nothing_to_show(axes, "no request has one")
            continue
        for index, (name, (values, shares)) in enumerate(curves.items()):
            axes.plot(values * 1e3, shares, color=CYCLE[index], label=name)
        _draw_guides(axes, latency, result)
    for axes in panels[:, 0]:
        axes.set_ylabel("share")
    for axes in panels.flat:
        axes.set_xlabel("ms")
    if len(groups) > 1:
        legend_below(fig, panels[0, 0].get_lines()[: len(groups)])
    return fig


def _groups(result: Result, done: BoolArray) -> dict[str, BoolArray]:
    """Requests by class; all together where there is one class, or too many to tell by colour."""
    if not 1 < len(result.class_names) <= MAX_CLASSES:
        return {"all": done}
    return {name: done & (result.requests["class_index"] == index) for index, name in enumerate(result.class_names)}


def _curve(result: Result, latency: str, rows: BoolArray) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Values in seconds and the share that does not exceed them; None of nothing."""
    if latency == "itl":
        counts = pool(pooled_gaps(result, rows)).bins
        some = np.flatnonzero(counts)
        if some.size == 0:
            return None
        values = np.repeat(bin_edges()[some] * TICK, 2)  # an upright at each value, the first from 0
        reached = np.cumsum(counts[some]) / counts.sum()
        return values, np.column_stack([np.concatenate([[0.0], reached[:-1]]), reached]).ravel()
    values = LATENCIES[latency](result.requests)[rows]
    values = values[~np.isnan(values)]
    return (np.quantile(values, SHARES), SHARES) if values.size else None


def _draw_guides(axes: "Axes", latency: str, result: Result) -> None:
    from matplotlib.ticker import PercentFormatter

    for limit, colour in _limits(result, latency).items():
        axes.axvline(limit * 1e3, color=colour, linestyle=(0, (6, 3)), linewidth=1.1)
        axes.annotate(
            f"SLO {limit * 1e3:g} ms", (limit * 1e3, 0), xycoords=("data", "axes fraction"), xytext=(-4, 5),
            textcoords="offset points", color=colour, fontsize=8, ha="right", rotation=90,
        )  # fmt: skip
    low, high = axes.dataLim.intervalx
    if low > 0 and high > 3 * low:
        axes.set_xscale("log")
        plain_log_axis(axes.xaxis)
    axes.set_ylim(0, 1.01)
    axes.set_yticks(GUIDES)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _limits(result: Result, latency: str) -> dict[float, str]:
    """Limits on a latency in seconds, and their colours: a class's own has the colour of its curve."""
    limits: dict[float, str] = {}
    for index in range(min(len(result.class_names), MAX_CLASSES)):
        slo = objective_of(result.scenario, index)
        limit = stated_limits(slo).get(latency) if slo else None
        if limit is not None:
            limits[limit] = FAINT if slo is result.scenario.slo else CYCLE[index]
    return limits
