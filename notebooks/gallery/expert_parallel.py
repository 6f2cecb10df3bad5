"""A few tokens fall unevenly on GPUs that hold whole experts, and the step waits for the busiest: experts that are
spread lose to experts that are cut until a batch touches all of them.

DeepSeek-V3 sends each token to 8 of 256 experts. Cut over eight H200, every GPU reads an eighth of each expert touched.
Spread, every GPU holds 32 whole ones: of 8 tokens the busiest GPU gets {busiest_of_8_tokens_over_mean:.1f} times its
share, and the step takes {step_of_8_spread_over_cut:.2f} times as long. From {tokens_that_touch_all:,.0f} tokens on
99 % of the experts are read either way; at 4,096 tokens whole experts multiply better than slices, and the step takes
{step_of_4096_spread_over_cut:.2f} of the time. If half as much again falls on one GPU, it takes
{step_of_4096_imbalanced_over_cut:.2f}. Sending tokens only to their experts and back (all-to-all) takes
{exchange_over_sum:.2f} of the time of a sum over all GPUs.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from notebooks.gallery._runs import kernels, scenario
from simserve.cost.operators import Routing
from simserve.report.plots.style import BLUE, GREEN, PURPLE, RED
from simserve.spec.ticks import to_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CONTEXT = 500
WAYS = {
    "cut": "cluster.expert_parallel=null",
    "spread": "cluster.expert_parallel=true",
    "all-to-all": "cluster.expert_parallel={communication: all_to_all}",
    "imbalance 1.5": "cluster.expert_parallel={imbalance: 1.5}",
}


def step(tokens: int, way: str) -> dict[str, float]:
    """Seconds of each operator of a step of decodes."""
    times: dict[str, float] = {}
    for kernel in kernels("expert_parallel", [WAYS[way]], decodes=tokens, context=tokens * CONTEXT):
        times[kernel.name] = times.get(kernel.name, 0.0) + to_seconds(kernel.ticks)
    return times


def measure() -> dict[str, Any]:
    """Time of a step by way and batch; load of the busiest GPU and share of the experts that are touched."""
    model = scenario("expert_parallel").model
    routing = Routing(model.num_experts, model.experts_per_token, spread=8)
    rows = np.array(TOKENS, dtype=np.float64)
    busiest = routing.busiest(rows) / rows
    touched = Routing(model.num_experts, model.experts_per_token).touched(rows) / model.num_experts
    every = np.arange(1.0, 1024.0)
    times = {way: [sum(step(tokens, way).values()) for tokens in TOKENS] for way in WAYS}
    of_8, of_4096 = TOKENS.index(8), TOKENS.index(4096)
    summed, sent = step(4096, "spread"), step(4096, "all-to-all")
    of_experts = summed["mlp_all_reduce"] * model.num_moe_layers / model.num_layers
    share = Routing(model.num_experts, model.experts_per_token).touched(every) / model.num_experts
    return {f"ms {way}": [1e3 * each for each in times[way]] for way in WAYS} | {
        "busiest_of_8_tokens_over_mean": float(busiest[of_8]),
        "step_of_8_spread_over_cut": times["spread"][of_8] / times["cut"][of_8],
        "tokens_that_touch_all": float(every[np.argmax(share > 0.99)]),
        "step_of_4096_spread_over_cut": times["spread"][of_4096] / times["cut"][of_4096],
        "step_of_4096_imbalanced_over_cut": times["imbalance 1.5"][of_4096] / times["cut"][of_4096],
        "exchange_over_sum": (sent["dispatch"] + sent["combine"]) / of_experts,
        "busiest": busiest.tolist(),
        "touched": touched.tolist(),
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Step times against those of cut experts; what chance does to the busiest GPU."""
    left, right = figure.subplots(1, 2)
    for way, color in zip(WAYS, (RED, BLUE, GREEN, PURPLE), strict=True):
        relative = np.array(measured[f"ms {way}"]) / np.array(measured["ms cut"])
        left.semilogx(TOKENS, relative, color=color, marker="o", markersize=3, label=way)
    left.set(title="Time of a step, cut experts = 1", xlabel="tokens of the step", ylim=(0.8, None))
    left.legend()
    right.semilogx(TOKENS, measured["busiest"], color=BLUE, marker="o", markersize=3)
    right.semilogx(TOKENS, measured["touched"], color=RED, marker="o", markersize=3)
    right.text(16, 2.2, "load of the busiest GPU, mean = 1", size=7, color=BLUE)
    right.text(40, 0.55, "experts that any token chose", size=7, color=RED)
    right.set(title="What chance does", xlabel="tokens of the step", ylim=(0, None))
    for axes in (left, right):
        axes.set_xticks([1, 8, 64, 512, 4096], ["1", "8", "64", "512", "4,096"])
        axes.minorticks_off()
