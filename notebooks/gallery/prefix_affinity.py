"""Eight prompts of 4,000 tokens, four caches with room for four of them each: where each request goes to the replica
that has its prompt, nearly all of it is found; where replicas take turns, half.

Taking turns brings every prompt to every replica, and each evicts what comes back next: {hit_rate_round_robin:.0%} of
the prompt tokens are found, {hit_rate_least_requests:.0%} where the replica with the fewest requests is taken, and
{hit_rate_prefix_affinity:.0%} where the router looks into the caches. The first token then comes after
{ttft_prefix_affinity_ms:.0f} ms in place of {ttft_round_robin_ms:.0f}, and the same four GPUs serve 40 requests a
second, where the others fall behind. With room for all eight prompts on every replica there is nothing to choose.

The price is an uneven load. If seven of ten requests share one prompt, the replica that has it gets
{busiest_of_hot:.0%} of them, and a token after the first takes {tpot_hot_prefix_affinity_ms:.1f} ms in place of
{tpot_hot_round_robin_ms:.1f}: affinity gives way only where a replica has 64 requests more than another, and half as
many again.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from notebooks.gallery._runs import run, summary
from simserve.report.plots.style import BLUE, FAINT, GREY, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUTERS = ("prefix_affinity", "least_requests", "round_robin")
BLOCKS = (600, 900, 1200, 1500, 1800, 2100, 2400)
RATES = (8, 16, 20, 24, 28, 40)
HOT = (
    "workload.shared_prefix=null",
    "workload.classes=[{name: hot, share: 0.7, shared_prefix: {groups: 1, length: 4000}}, "
    "{name: others, share: 0.3, shared_prefix: {groups: 7, length: 4000}}]",
)


def of(router: str, *overrides: str) -> dict[str, Any]:
    """Numbers of a run behind a router."""
    return summary("prefix_affinity", f"cluster.router={router}", *overrides)


def busiest_share(*overrides: str) -> float:
    """Of all requests, those that the busiest replica gets."""
    given = np.bincount(run("prefix_affinity", "cluster.router=prefix_affinity", *overrides).requests["replica"])
    return float(given.max() / given.sum())


def measure() -> dict[str, Any]:
    """Hits and waits behind each router, over the size of a cache and over the load; and with one prompt in demand."""
    hits = {f"hit_rate_{router}": of(router)["prefix_cache_hit_rate"] for router in ROUTERS}
    waits = {f"ttft_{router}_ms": of(router)["mean_ttft_ms"] for router in ROUTERS}
    hot = {f"tpot_hot_{router}_ms": of(router, *HOT)["mean_tpot_ms"] for router in ("prefix_affinity", "round_robin")}
    by_size = {
        f"hits_by_blocks_{router}": [
            of(router, f"engine.num_gpu_blocks={blocks}")["prefix_cache_hit_rate"] for blocks in BLOCKS
        ]
        for router in ROUTERS
    }
    by_rate = {
        f"ttft_by_rate_{router}_ms": [of(router, f"workload.arrivals.rate={rate}")["mean_ttft_ms"] for rate in RATES]
        for router in ROUTERS
    }
    return {**hits, **waits, **hot, "busiest_of_hot": busiest_share(*HOT), **by_size, **by_rate}


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Hits over the blocks of a replica, TTFT over the load."""
    size, load = figure.subplots(1, 2)
    for router, colour in zip(ROUTERS, (BLUE, RED, GREY), strict=True):
        style: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 3, "label": router}
        size.plot(BLOCKS, [100 * rate for rate in measured[f"hits_by_blocks_{router}"]], **style)
        load.plot(RATES, measured[f"ttft_by_rate_{router}_ms"], **style)
    all_fit = 8 * 4000 // 16
    size.axvline(all_fit, color=FAINT, linewidth=1, linestyle=":")
    size.text(all_fit * 0.98, 3, "all 8 fit", size=7, color=FAINT, ha="right")
    size.set(title="16 requests/s", xlabel="blocks of each replica", ylabel="hits, % of prompt tokens", ylim=(0, 100))
    load.set(title="1,200 blocks", xlabel="requests/s", ylabel="mean TTFT, ms", ylim=(0, 500), xlim=(0, None))
    load.legend(loc="center right", fontsize=7)
