"""Copying a victim's KV to the CPU and back is cheaper than computing it again, and neither is what hurts.

When running requests outgrow the KV cache, one of them must go. vLLM computes its KV again later; before its V1 engine
it could also copy it to CPU memory and back, over PCIe while the GPU goes on. With room for {tight_tokens:,.0f} tokens
on an L4, swapping gives {gain_of_swapping:.1%} more tokens per second than recomputing, for {preemptions:.0f}
preemptions of 200 requests.

What hurts is to let in prompts whose first chunk fits and whose last one does not (`scheduler_reserve_full_isl:
false`): they evict each other, every prompt token is computed {prompts_computed_without_gate:.1f} times, and
{loss_without_gate:.0%} of the throughput is gone. Swapped, {swaps_without_gate:,.0f} evictions cost next to
nothing. The copies slow the kernels beside them by {interference_per_copied_s_ms:.0f} ms for each second of copying,
since both use the same HBM (`run.resolution: kernels`). They are taken to be as fast as the link allows: blocks copied
one by one, as vLLM did, would take longer.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from notebooks.gallery._runs import run, scenario, summary
from simserve.report.plots.style import BLUE, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCKS = (600, 800, 1200, 1600, 2400)
TIGHT = 1200
SWAP = ("engine.preemption=swap",)
RECOMPUTE = ("engine.preemption=recompute", "engine.swap_space=null", "engine.async_scheduling=false")
NO_GATE = ("engine.scheduler_reserve_full_isl=false",)
FEW = ("workload.num_requests=16", "engine.num_gpu_blocks=600")


class Way(NamedTuple):
    """What becomes of victims, and whether prompts that do not fit are let in."""

    name: str
    colour: str
    style: str
    overrides: tuple[str, ...]


WAYS = (
    Way("swap", BLUE, "o-", SWAP),
    Way("recompute", RED, "o-", RECOMPUTE),
    Way("swap, prompts let in by chunks", BLUE, "s--", (*SWAP, *NO_GATE)),
    Way("recompute, prompts let in by chunks", RED, "s--", (*RECOMPUTE, *NO_GATE)),
)


def with_blocks(blocks: int, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Overrides for a pool of so many blocks."""
    return (f"engine.num_gpu_blocks={blocks}", *overrides)


def throughput(blocks: int, overrides: tuple[str, ...]) -> float:
    """Output tokens per second."""
    return float(summary("preemption", *with_blocks(blocks, overrides))["output_throughput"])


def times_computed(blocks: int, overrides: tuple[str, ...]) -> float:
    """How often a prompt token is computed, with what is computed again of answers counted as well."""
    result = run("preemption", *with_blocks(blocks, overrides))
    return float(result.steps["prefill_tokens"].sum() / result.requests["input_len"].sum())


def interference() -> float:
    """Seconds that kernels lose for each second of copying, kernel by kernel against step by step."""
    steps, kernels = (run("preemption", *FEW, *NO_GATE, f"run.resolution={how}") for how in ("steps", "kernels"))
    link = scenario("preemption").cluster.gpu.interconnect.host_bandwidth
    copied = float(str(steps.meta["swapped_bytes"])) / link
    return float(kernels.steps["gpu_time"].sum() - steps.steps["gpu_time"].sum()) / copied


def measure() -> dict[str, Any]:
    """Throughput, and how often a prompt is computed, as the KV cache shrinks."""
    speed = {way.name: [throughput(blocks, way.overrides) for blocks in BLOCKS] for way in WAYS}
    computed = {way.name: [times_computed(blocks, way.overrides) for blocks in BLOCKS] for way in WAYS}
    tight = BLOCKS.index(TIGHT)
    swap, recompute, swap_without, recompute_without = (speed[way.name][tight] for way in WAYS)
    return {
        "tight_tokens": (TIGHT - 1) * scenario("preemption").engine.block_size,
        "gain_of_swapping": swap / recompute - 1,
        "preemptions": summary("preemption", *with_blocks(TIGHT, SWAP))["num_preemptions"],
        "prompts_computed_again": computed["recompute"][tight],
        "prompts_computed_without_gate": computed["recompute, prompts let in by chunks"][tight],
        "loss_without_gate": 1 - recompute_without / recompute,
        "loss_without_gate_swapping": 1 - swap_without / swap,
        "swaps_without_gate": summary("preemption", *with_blocks(TIGHT, (*SWAP, *NO_GATE)))["num_swaps"],
        "interference_per_copied_s_ms": 1e3 * interference(),
        **{f"speed, {name}": values for name, values in speed.items()},
        **{f"computed, {name}": values for name, values in computed.items()},
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Throughput, and work done again, over the size of the cache."""
    left, right = figure.subplots(1, 2)
    tokens = np.array(BLOCKS) * scenario("preemption").engine.block_size / 1e3
    for way in WAYS:
        left.plot(tokens, measured[f"speed, {way.name}"], way.style, color=way.colour, markersize=4, label=way.name)
        right.plot(tokens, measured[f"computed, {way.name}"], way.style, color=way.colour, markersize=4)
    left.set(title="Output tokens/s", xlabel="thousands of tokens in the KV cache", ylim=(0, None))
    right.set(title="Times that a prompt is computed", xlabel="thousands of tokens in the KV cache", ylim=(0, None))
    left.legend(loc="lower right", fontsize=7)
