"""What a whole is made of: the time of the steps, and the memory of a GPU."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simserve.report.plots.style import BLUE, GREEN, GREY, PURPLE, RED, YELLOW, figure, nothing_to_show, styled
from simserve.report.text import group_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GIB = 2**30
LEDGER = {
    "weights": ("weights", BLUE),
    "activations": ("activations", RED),
    "cuda_graphs": ("CUDA graphs", PURPLE),
    "framework": ("framework", YELLOW),
    "kv": ("KV cache", GREEN),
}
"""Lines of the memory ledger and their looks."""
LEAST_SHARE = 0.002


@styled
def step_time_plot(step_time_breakdown: Mapping[str, float]) -> "Figure":
    """Share of the time of all steps that each group of operators takes."""
    total = sum(step_time_breakdown.values())
    parts = sorted(step_time_breakdown.items(), key=lambda part: part[1])
    parts = [(name, time) for name, time in parts if total > 0 and time / total >= LEAST_SHARE]
    fig = figure(7.2, 1.0 + 0.26 * max(len(parts), 2))
    axes = fig.subplots()
    if not parts:
        nothing_to_show(axes, "the time of the steps is not broken down")
        return fig
    shares = [100 * time / total for _, time in parts]
    bars = axes.barh([group_name(name) for name, _ in parts], shares, color=BLUE, height=0.7)
    axes.bar_label(bars, [f"{share:.1f} %" for share in shares], padding=3, fontsize=8)
    axes.set(xlabel="% of the time of all steps", title="Where the time of the steps goes")
    axes.set_xlim(0, max(shares) * 1.13)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    return fig


@styled
def memory_plot(memory: Mapping[str, float | int | str]) -> "Figure":
    """The memory ledger of one GPU as one bar, in GiB."""
    lines = {key: float(memory[key]) / GIB for key in LEDGER if isinstance(memory.get(key), int | float)}
    fig = figure(7.2, 1.7)
    axes = fig.subplots()
    if not lines:
        nothing_to_show(axes, "this run has no memory ledger")
        return fig
    total = float(memory.get("total", 0.0)) / GIB
    left = 0.0
    for key, size in lines.items():
        name, colour = LEDGER[key]
        axes.barh(0, size, left=left, color=colour, height=0.6, label=f"{name} {size:.1f}")
        left += size
    if total > left:
        axes.barh(0, total - left, left=left, color=GREY, alpha=0.5, height=0.6, label=f"left alone {total - left:.1f}")
    axes.set(xlabel="GiB of one GPU", yticks=[], title="Memory ledger")
    axes.set_xlim(0, max(total, left))
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    fig.legend(loc="outside lower center", ncols=6, handlelength=1.0, columnspacing=1.2)
    return fig
