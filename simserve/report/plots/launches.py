"""A step seen from close by: when the CPU launches kernels, when the GPU runs them, and how much of HBM they use."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simserve.report.plots.style import BLUE, CYAN, FAINT, GREY, PURPLE, RED, YELLOW, figure, legend_below, styled
from simserve.spec.timeline import Span, StepTimeline

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDS = {
    "memory": (BLUE, "bound by memory"),
    "compute": (RED, "bound by compute"),
    "network": (PURPLE, "bound by the network"),
    "floor": (YELLOW, "as short as a kernel gets"),
}
_CPU, _GPU, _HBM = 2.0, 1.0, 0.0
_HEIGHT = 0.62
_LETTER = 0.008
"""Width of a letter on a box, as a share of the time axis."""


@styled
def launches_plot(timelines: Sequence[StepTimeline], titles: Sequence[str], window: float) -> "Figure":
    """The first `window` seconds of each step from its first launch on, one panel each on the same time axis."""
    fig = figure(7.2, 0.7 + 1.75 * len(timelines))
    panels = fig.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    for axes, timeline, title in zip(panels, timelines, titles, strict=True):
        _draw(axes, timeline, window)
        axes.set_title(title)
    panels[-1].set(xlabel="µs after the first launch", xlim=(0, window * 1e6))
    legend_below(fig, list(_legend(timelines, window)))
    return fig


def _draw(axes: "Axes", timeline: StepTimeline, window: float) -> None:
    start = timeline.launches[0].start
    for lane, spans in ((_CPU, timeline.launches), (_GPU, timeline.kernels)):
        seen = _seen(spans, timeline, window)
        left = np.array([span.start - start for span in seen]) * 1e6
        width = np.array([span.end - span.start for span in seen]) * 1e6
        colours = [BOUNDS[span.bound][0] if span.bound else GREY for span in seen]
        axes.barh(lane, width, left=left, height=_HEIGHT, color=colours, edgecolor="white", linewidth=0.5)
    for span in timeline.kernels:
        _label(axes, span, start, window)
    at = np.array([level.at for level in timeline.levels] + [timeline.levels[-1].at])
    use = np.array([(level.kernels + level.copies) / timeline.hbm_bandwidth for level in timeline.levels])
    edges = np.clip((at - start) * 1e6, -1.0, window * 1e6 + 1.0)
    bottom = _HBM - _HEIGHT / 2
    axes.stairs(bottom + _HEIGHT * use, edges, baseline=bottom, fill=True, color=CYAN, linewidth=0)
    axes.plot([0, window * 1e6], [bottom + _HEIGHT] * 2, color=FAINT, linewidth=0.6, linestyle=(0, (3, 3)))
    axes.set_yticks([_CPU, _GPU, _HBM], ["CPU launches", "GPU runs", "HBM in use"])
    axes.set_ylim(-0.45, 2.45)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _seen(spans: Sequence[Span], timeline: StepTimeline, window: float) -> list[Span]:
    return [span for span in spans if span.start < timeline.launches[0].start + window]


def _label(axes: "Axes", kernel: Span, start: float, window: float) -> None:
    """The name of a kernel on its box, where there is room for it."""
    name = kernel.name.replace("_", " ")
    if kernel.end > start + window or (kernel.end - kernel.start) / window < _LETTER * (len(name) + 2):
        return
    middle = (kernel.start + kernel.end) / 2 - start
    axes.text(middle * 1e6, _GPU, name, size=6, color="white", ha="center", va="center")


def _legend(timelines: Sequence[StepTimeline], window: float) -> "Iterator[Artist]":
    from matplotlib.patches import Patch

    met = {kernel.bound for timeline in timelines for kernel in _seen(timeline.kernels, timeline, window)}
    yield Patch(color=GREY, label="one launch")
    for bound, (colour, label) in BOUNDS.items():
        if bound in met:
            yield Patch(color=colour, label=label)
    yield Patch(color=CYAN, label="share of HBM's peak")
