"""A run over time: what the fleet held, and what became of single requests."""

from typing import TYPE_CHECKING, Any

import numpy as np

from simserve.report.plots.style import BLUE, CYAN, FAINT, GREEN, PURPLE, RED, YELLOW, figure, nothing_to_show, styled
from simserve.report.series import Series, series
from simserve.spec.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_BARS = 200


@styled
def timeline_plot(result: Result) -> "Figure":
    """Requests running and waiting, KV blocks in use and tokens a second over simulated time; preemptions are ticks."""
    found = series(result)
    fig = figure(7.2, 6.4)
    if found is None:
        nothing_to_show(fig.subplots(), "no step was taken")
        return fig
    requests, blocks, output, prompt = fig.subplots(4, 1, sharex=True, height_ratios=(3, 2, 2, 2))
    scale, unit = time_unit(found.edges[-1] - found.edges[0])
    edges = found.edges / scale
    _draw_requests(requests, found, edges)
    blocks.set(title="KV blocks in use", ylabel="%")
    if found.kv_usage is None:
        nothing_to_show(blocks, "the number of blocks is not known")
    else:
        blocks.stairs(100 * found.kv_usage, edges, fill=True, color=GREEN, alpha=0.35)
        blocks.stairs(100 * found.kv_usage, edges, color=GREEN, baseline=None)
        blocks.set_ylim(0, min(102.0, max(5.0, 125 * float(found.kv_usage.max()))))
    for axes, rate, colour, title in (
        (output, found.output_rate, PURPLE, "Output tokens a second"),
        (prompt, found.prefill_rate, CYAN, "Prompt tokens computed a second"),
    ):
        axes.stairs(rate, edges, fill=True, color=colour, alpha=0.35)
        axes.stairs(rate, edges, color=colour, baseline=None)
        axes.set(title=title, ylabel="tokens/s", ylim=(0, max(1.0, float(rate.max())) * 1.05))
    prompt.set(xlabel=f"simulated time ({unit})", xlim=(edges[0], edges[-1]))
    fig.align_ylabels()
    return fig


def _draw_requests(axes: "Axes", found: Series, edges: "np.ndarray[Any, Any]") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(title="Requests in the engine", ylabel="requests")
    both = found.running + found.waiting
    axes.stairs(found.running, edges, fill=True, color=BLUE, alpha=0.75, label="running")
    axes.stairs(both, edges, fill=True, baseline=found.running, color=YELLOW, alpha=0.75, label="waiting")
    if found.preemptions.any():
        at = ((edges[:-1] + edges[1:]) / 2)[found.preemptions > 0]
        axes.plot(at, np.full(at.size, 0.97), "|", color=RED, markersize=6,
                  transform=axes.get_xaxis_transform(), label="preemption")  # fmt: skip
    axes.set_ylim(0, max(1.0, float(both.max())) * 1.05)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.1)


def time_unit(span: float) -> tuple[float, str]:
    """Seconds in the unit that suits a span, and its name."""
    if span >= 3 * 3600:
        return 3600.0, "h"
    return (60.0, "min") if span >= 300 else (1.0, "s")


@styled
def gantt_plot(result: Result, limit: int = MAX_BARS) -> "Figure":
    """The first requests as bars: waiting, prefill (scheduled to first token) and decode, over simulated time."""
    requests = result.requests
    order = np.argsort(requests["arrival"], kind="stable")
    order = order[~np.isnan(requests["arrival"][order])][:limit]
    fig = figure(7.2, min(1.4 + 0.035 * max(order.size, 20), 7.0))
    axes = fig.subplots()
    if order.size == 0:
        nothing_to_show(axes, "no request arrived")
        return fig
    arrival, scheduled, first, finish = (requests[n][order] for n in ("arrival", "scheduled", "first_token", "finish"))
    end = np.nanmax(np.concatenate([finish, result.steps["end"], arrival]))
    stages = (
        ("waiting", arrival, scheduled, YELLOW),
        ("prefill", scheduled, first, RED),
        ("decode", first, finish, BLUE),
    )
    last = float(np.nanmax(np.where(np.isnan(finish), end, finish)))
    scale, unit = time_unit(last - float(arrival[0]))
    for name, begin, until, colour in stages:
        rows = np.flatnonzero(~np.isnan(begin))
        width = np.where(np.isnan(until), last, until)[rows] - begin[rows]
        axes.barh(rows, width / scale, left=begin[rows] / scale, height=0.85, color=colour, linewidth=0, label=name)
    preempted = np.flatnonzero(requests["num_preemptions"][order] > 0)
    if preempted.size:
        ends = np.where(np.isnan(finish), last, finish)[preempted] / scale
        axes.plot(ends, preempted, linestyle="none", marker="<", markersize=3, color=FAINT, label="was preempted")
    axes.set(
        xlabel=f"simulated time ({unit})",
        ylabel="request, by arrival",
        title=f"The first {order.size} requests" if order.size < requests["arrival"].size else "Requests",
    )
    axes.set_ylim(order.size - 0.5, -0.5)
    axes.set_xlim(float(arrival[0]) / scale, last / scale)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.1)
    return fig
