"""Quantised weights speed up decode, quantised activations prefill too, and a quantised KV cache lets more requests in.

Llama-3.1-8B on an L4. Decode waits for weights: one user's token takes {tpot_bf16_ms:.0f} ms in bf16,
{tpot_fp8_ms:.0f} ms with 8 bits a weight and {tpot_int4_ms:.0f} ms with 4. Prefill multiplies: int4 weights are widened
to bf16 before they are used and gain nothing ({ttft_int4_ms:.0f} ms to the first token after 2,000, {ttft_bf16_ms:.0f}
ms in bf16), whereas fp8 weights are multiplied with fp8 activations, at twice the FLOP/s ({ttft_fp8_ms:.0f} ms).

What weights leave free becomes KV cache: {kv_tokens_bf16:,.0f} tokens beside bf16 weights, {kv_tokens_int4:,.0f} beside
int4 weights, {kv_tokens_all:,.0f} with weights and cache in fp8. Hence 32 users, who do not fit in bf16, get
{throughput_all_over_bf16:.1f} times the tokens with all in fp8.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import summary
from simserve.report.plots.style import BLUE, GREEN, GREY, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {
    "bf16": (),
    "kv": ("model.kv_dtype=fp8",),
    "int4": ("model.weight_dtype=int4",),
    "fp8": ("model.weight_dtype=fp8",),
    "all": ("model.weight_dtype=fp8", "model.kv_dtype=fp8"),
}
NAMES = {
    "bf16": "bf16",
    "kv": "KV fp8",
    "int4": "weights int4",
    "fp8": "weights,\nactivations fp8",
    "all": "all fp8",
}
ALONE = ("workload.arrivals.users=1", "workload.num_requests=1")
GIB = 2**30


def measure() -> dict[str, Any]:
    """Speed of one user, memory, and throughput of 32 users, for each format."""
    measured: dict[str, Any] = {}
    for name, overrides in FORMATS.items():
        alone, crowd = summary("quantisation", *ALONE, *overrides), summary("quantisation", *overrides)
        measured |= {
            f"tpot_{name}_ms": alone["mean_tpot_ms"],
            f"ttft_{name}_ms": alone["mean_ttft_ms"],
            f"weights_{name}_gib": alone["memory"]["weights"] / GIB,
            f"kv_{name}_gib": alone["memory"]["kv"] / GIB,
            f"kv_tokens_{name}": alone["memory"]["kv_tokens"],
            f"output_tokens_per_s_{name}": crowd["output_throughput"],
            f"queue_{name}_s": crowd["mean_queue_time_ms"] / 1e3,
        }
    measured["throughput_all_over_bf16"] = measured["output_tokens_per_s_all"] / measured["output_tokens_per_s_bf16"]
    return measured


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """One row of bars a format; speed alone, memory, and a crowd."""
    figure.set_size_inches(7.2, 2.9)
    panels = figure.subplots(1, 4, sharey=True)
    columns = {
        "TPOT alone, ms": ("tpot_{}_ms", BLUE),
        "TTFT alone, ms": ("ttft_{}_ms", RED),
        "KV, 1000 tokens": ("kv_tokens_{}", GREEN),
        "32 users, tokens/s": ("output_tokens_per_s_{}", GREY),
    }
    for axes, (title, (key, colour)) in zip(panels, columns.items(), strict=True):
        scale = 1e-3 if "1000" in title else 1.0
        values = [scale * measured[key.format(name)] for name in FORMATS]
        bars = axes.barh(list(NAMES.values()), values, color=colour, height=0.65)
        axes.bar_label(bars, [f"{value:.0f}" for value in values], padding=2, size=7)
        axes.set_title(title, size=8)
        axes.set_xlim(0, 1.25 * max(values))
        axes.set_xticks([])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
    panels[0].invert_yaxis()
