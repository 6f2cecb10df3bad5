"""Over NVLink eight GPUs give 32 users three times the speed of one; over PCIe all-reduces eat the gain from four on.

Each GPU reads a part of every weight, and after each attention and each MLP all of them add up what they have:
{all_reduces_of_a_step:.0f} all-reduces in a step of Llama-3.1-8B. On H100 with NVLink that takes
{communication_share_h100_tp8:.0%} of the time at eight GPUs, and a token {tpot_h100_tp8_ms:.1f} ms in place of
{tpot_h100_tp1_ms:.1f} ms. On L40S with PCIe 4 it takes {communication_share_l40s_tp4:.0%} at four GPUs: two are
faster ({tpot_l40s_tp2_ms:.0f} ms) than one ({tpot_l40s_tp1_ms:.0f} ms), four ({tpot_l40s_tp4_ms:.0f} ms) slower than
two.

An all-reduce of few tokens waits for latency, one of a long prompt for bandwidth: the first token after 8,000 comes
{ttft_h100_tp1_over_tp8:.1f} times as early on eight H100s, and on four L40S {ttft_l40s_tp4_over_tp1:.1f} times as
late as on one. Speed costs throughput: the eight H100s make {throughput_h100_tp8_over_eight_replicas:.0%} of what they
would make as eight replicas with 32 users each.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import kernels, summary
from simserve.report.plots.style import BLUE, RED, YELLOW

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANKS = (1, 2, 4, 8)
GPUS = {"h100": "h100-sxm-80gb", "rtx_pro": "rtx-pro-6000-96gb", "l40s": "l40s-48gb"}
LOOKS = {"h100": ("H100, NVLink 4", BLUE), "rtx_pro": ("RTX PRO 6000, PCIe 5", YELLOW), "l40s": ("L40S, PCIe 4", RED)}
PROMPT = ("workload.arrivals.users=1", "workload.num_requests=1", "workload.input=8000", "workload.output=1")


def on(gpu: str, ranks: int, *overrides: str) -> dict[str, Any]:
    """Numbers of a run on so many GPUs."""
    return summary("tensor_parallel", f"cluster.gpu={GPUS[gpu]}", f"cluster.tensor_parallel={ranks}", *overrides)


def communication_share(run: dict[str, Any]) -> float:
    """Share of the time of all steps that all-reduces take."""
    parts: dict[str, float] = run["step_time_breakdown"]
    return parts.get("communication", 0.0) / sum(parts.values())


def measure() -> dict[str, Any]:
    """TPOT of 32 users, TTFT of a long prompt and the share of communication, over GPUs of a replica."""
    crowd = {gpu: [on(gpu, ranks) for ranks in RANKS] for gpu in GPUS}
    tpot = {gpu: [run["mean_tpot_ms"] for run in runs] for gpu, runs in crowd.items()}
    share = {gpu: [communication_share(run) for run in runs] for gpu, runs in crowd.items()}
    ttft = {gpu: [on(gpu, ranks, *PROMPT)["mean_ttft_ms"] for ranks in RANKS] for gpu in GPUS}
    per_gpu = [run["tokens_per_s_per_gpu"] for run in crowd["h100"]]
    step = kernels("tensor_parallel", decodes=32, context=32 * 600)
    return {
        **{f"tpot_{gpu}_tp{ranks}_ms": tpot[gpu][place] for gpu in GPUS for place, ranks in enumerate(RANKS)},
        "all_reduces_of_a_step": sum("all_reduce" in kernel.name for kernel in step),
        "communication_share_h100_tp8": share["h100"][3],
        "communication_share_l40s_tp2": share["l40s"][1],
        "communication_share_l40s_tp4": share["l40s"][2],
        "ttft_h100_tp1_over_tp8": ttft["h100"][0] / ttft["h100"][3],
        "ttft_l40s_tp4_over_tp1": ttft["l40s"][2] / ttft["l40s"][0],
        "throughput_h100_tp8_over_eight_replicas": per_gpu[3] / per_gpu[0],
        **{f"tpot_{gpu}": tpot[gpu] for gpu in GPUS},
        **{f"ttft_{gpu}": ttft[gpu] for gpu in GPUS},
        **{f"share_{gpu}": share[gpu] for gpu in GPUS},
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Three panels over the GPUs of a replica, one line a link."""
    panels = figure.subplots(1, 3)
    rows = (
        ("tpot", "TPOT of 32 users, ms", 1.0),
        ("ttft", "TTFT of 8,000 tokens, ms", 1.0),
        ("share", "Communication, % of the time", 100.0),
    )
    for axes, (key, title, scale) in zip(panels, rows, strict=True):
        for gpu, (label, colour) in LOOKS.items():
            values = [scale * value for value in measured[f"{key}_{gpu}"]]
            axes.plot(RANKS, values, color=colour, marker="o", markersize=3, label=label)
        axes.set_xscale("log")
        axes.set_xticks(RANKS, [f"{ranks}" for ranks in RANKS])
        axes.minorticks_off()
        axes.set(xlabel="GPUs of a replica", ylim=(0, None))
        axes.set_title(title, size=8.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
