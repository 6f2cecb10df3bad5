"""Blocks of 16 tokens hold sixteen times the requests that places of 8,192 tokens each do.

Before PagedAttention an engine reserved a place as long as the longest request it allowed. Here the mean request has
700 tokens, so {waste_of_places:.0%} of what is reserved holds nothing; of blocks of 16 tokens {waste_of_blocks:.1%} do,
of blocks of 256 {waste_of_large_blocks:.0%}. On one H100 {requests_in_blocks:.0f} requests run beside each other, not
{requests_in_places:.0f}, and together they get {throughput_of_blocks_over_places:.2f} times the tokens per second.

This is why the context on offer used to end long before the model's own: with places of its {model_limit:,.0f} tokens
{requests_at_model_limit:.0f} requests fit on the GPU, and blocks give {throughput_of_blocks_over_model_limit:.0f} times
their throughput. What a kernel pays for small blocks is not modelled: size costs memory here, never time.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from notebooks.gallery._runs import run, scenario, summary
from simserve.report.plots.style import BLUE, FAINT, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCKS = (1, 4, 16, 64, 256)
LIMITS = (4096, 8192, 32768, 131072)


def blocks_of(size: int) -> tuple[str, ...]:
    """Overrides for a pool of blocks."""
    return (f"engine.block_size={size}",)


def places_of(limit: int) -> tuple[str, ...]:
    """Overrides for a place of so many tokens per request."""
    return ("engine.kv_allocation=contiguous", f"engine.max_model_len={limit}")


def concurrency(overrides: tuple[str, ...]) -> float:
    """Requests running at once while others wait: the mean over the GPU's time."""
    steps = run("paged_kv", *overrides).steps
    full = steps["waiting"] > 0
    return float(np.average(steps["running"][full], weights=steps["gpu_time"][full]))


def measure() -> dict[str, Any]:
    """Waste, concurrency and throughput over sizes of blocks and of places."""
    ways = [*map(blocks_of, BLOCKS), *map(places_of, LIMITS)]
    waste = [summary("paged_kv", *way)["kv_cache_waste"] for way in ways]
    running = [concurrency(way) for way in ways]
    speed = [summary("paged_kv", *way)["output_throughput"] for way in ways]
    block, large, place, limit = (ways.index(way) for way in (ways[2], ways[4], ways[6], ways[8]))
    return {
        "waste_of_blocks": waste[block],
        "waste_of_large_blocks": waste[large],
        "waste_of_places": waste[place],
        "requests_in_blocks": running[block],
        "requests_in_places": running[place],
        "requests_at_model_limit": running[limit],
        "throughput_of_blocks_over_places": speed[block] / speed[place],
        "throughput_of_blocks_over_model_limit": speed[block] / speed[limit],
        "model_limit": scenario("paged_kv").model.max_position_embeddings,
        "waste": waste,
        "requests": running,
        "output_tokens_per_s": speed,
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Bars for each size of blocks and places."""
    names = [*(f"block of {size}" for size in BLOCKS), *(f"place of {limit:,}" for limit in LIMITS)]
    colours = [BLUE] * len(BLOCKS) + [RED] * len(LIMITS)
    panels = figure.subplots(1, 3, sharey=True)
    titles = ("Reserved and empty, %", "Requests at once", "Output tokens/s")
    rows = ([100 * share for share in measured["waste"]], measured["requests"], measured["output_tokens_per_s"])
    for axes, title, values in zip(panels, titles, rows, strict=True):
        axes.barh(names, values, color=colours)
        axes.set(title=title, xlim=(0, 1.25 * max(values)))
        axes.grid(visible=False, axis="y")
        for row, value in enumerate(values):
            shown = f"{value:.1f}" if value < 10 else f"{value:,.0f}"
            axes.annotate(shown, (value, row), (3, 0), textcoords="offset points", va="center", size=7, color=FAINT)
    panels[0].invert_yaxis()
