"""What a trace looks like: its rate over time, its lengths, its gaps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simserve.report.plots.style import BLUE, FAINT, GREEN, RED, figure, nothing_to_show, plain_log_axis, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 60


@styled
def traffic_plot(
    times: Sequence[float], rate: tuple[Any, Any] | None, inputs: Any, outputs: Any, title: str = ""
) -> "Figure":
    """Three panels: `rate` (edges in s, requests/s), lengths in tokens, and gaps between `times` (s, in order)."""
    fig = figure(7.2, 6.4)
    over_time, lengths, gaps = fig.subplots(3, 1)
    if rate is None:
        nothing_to_show(over_time, "the trace has no times")
    else:
        edges, values = rate
        over_time.stairs(values, edges, color=BLUE, fill=True, alpha=0.35)
        over_time.stairs(values, edges, color=BLUE)
        over_time.set(xlabel="s", ylabel="requests/s", title=f"Rate over time{title and f': {title}'}")
        over_time.set_ylim(bottom=0)
    for values, name, colour in ((inputs, "input", BLUE), (outputs, "output", RED)):
        lengths.stairs(*_histogram(np.asarray(values, dtype=np.float64)), label=name, color=colour)
    lengths.set(xlabel="tokens", ylabel="requests", title="Lengths", xscale="log")
    plain_log_axis(lengths.xaxis)
    lengths.legend()
    _draw_gaps(gaps, np.diff(np.asarray(times, dtype=np.float64)))
    return fig


def _draw_gaps(axes: "Axes", gaps: Any) -> None:
    gaps = gaps[gaps > 0]
    if not len(gaps):
        nothing_to_show(axes, "there are no gaps between arrivals")
        return
    ordered = np.sort(gaps)
    axes.plot(ordered, 1 - np.arange(len(ordered)) / len(ordered), color=GREEN, label="trace")
    points = np.geomspace(ordered[0], ordered[-1], 200)
    axes.plot(points, np.exp(-points / gaps.mean()), color=FAINT, linestyle="--", label="Poisson of this rate")
    axes.set(xlabel="s", ylabel="share of longer gaps", title="Gaps", xscale="log", yscale="log")
    axes.set_ylim(0.5 / len(ordered), 1.5)
    plain_log_axis(axes.xaxis)
    axes.legend()


def _histogram(values: Any) -> tuple[Any, Any]:
    low, high = max(values.min(), 1.0), max(values.max(), 2.0)
    return np.histogram(values, np.geomspace(low, high + 1, _BINS + 1))
