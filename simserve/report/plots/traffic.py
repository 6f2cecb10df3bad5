"""What a trace looks like: its rate over time, its lengths, its gaps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simserve.report.plots.style import BLUE, FAINT, GREEN, RED, figure, nothing_to_show, styled

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
    _decades(lengths)
    lengths.legend()
    _draw_gaps(gaps, np.diff(np.asarray(times, dtype=np.float64)))
    return fig


def _draw_gaps(axes: "Axes", gaps: Any) -> None:
    """Share of the gaps that are longer, beside those of Poisson arrivals of the same rate."""
    if not len(gaps) or gaps.max() <= 0:
        nothing_to_show(axes, "there are no gaps between arrivals")
        return
    ordered = np.sort(gaps[gaps > 0])
    together = 1 - len(ordered) / len(gaps)
    mean = gaps.mean()
    axes.plot(ordered, (1 - together) * (1 - np.arange(len(ordered)) / len(ordered)), color=GREEN, label="trace")
    points = np.geomspace(min(ordered[0], mean / 50), ordered[-1], 200)
    axes.plot(points, np.exp(-points / mean), color=FAINT, linestyle="--", label="Poisson of this rate")
    title = f"Gaps{f', {together:.0%} of them 0' if together else ''}"
    axes.set(xlabel="s", ylabel="share of longer gaps", title=title, xscale="log", yscale="log")
    axes.set_ylim(0.5 / len(gaps), 1.5)
    _decades(axes)
    axes.legend()


def _decades(axes: "Axes") -> None:
    """Powers of ten as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.xaxis.set_major_locator(LogLocator(numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e6 else f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _histogram(values: Any) -> tuple[Any, Any]:
    low, high = max(values.min(), 1.0), max(values.max(), 2.0)
    return np.histogram(values, np.geomspace(low, high + 1, _BINS + 1))
