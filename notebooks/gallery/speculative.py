"""Drafts that are checked in one step double the speed of a user alone, and slow a full server down.

A decode step of one user reads all weights to make one token; for the same reading it can check three drafts as well.
When each is right with 70 % after those before it, a step gives 1 + 0.7 + 0.49 + 0.34 = 2.5 tokens. An EAGLE drafter
makes a user of Llama-3.1-8B on an H100 {eagle_8b_speedup_of_1_user:.2f} times as fast, Llama-3.2-1B as a draft model,
dearer to ask, {draft_model_8b_speedup_of_1_user:.2f} times. For Llama-3.1-70B on four H100, beside which any drafter is
cheap, it is {eagle_70b_speedup_of_1_user:.2f} and {draft_model_70b_speedup_of_1_user:.2f} times.

Drafts that turn out wrong were multiplied for nothing, which is free only while multiplying is. From about
{eagle_8b_crossover_users:.0f} users at once on (draft model: {draft_model_8b_crossover_users:.0f}) the 8B server makes
more tokens without drafts, the 70B server from about {eagle_70b_crossover_users:.0f}
({draft_model_70b_crossover_users:.0f}); with 512 users EAGLE costs the 8B server {eagle_8b_loss_of_512_users:.0%} of
its throughput.

Tokens come several at a time. What a user sees as a pause between two pieces of text (ITL) gets longer with drafts,
{itl_of_1_user_ms:.1f} ms in place of {plain_tpot_of_1_user_ms:.1f} ms, and each pause brings
{tokens_per_pause:.1f} tokens: the time per token (TPOT) is {tpot_of_1_user_ms:.1f} ms.
"""

from collections.abc import Sequence
from math import exp, log
from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import summary
from simserve.report.plots.style import BLUE, FAINT, GREY, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

USERS = (1, 4, 16, 32, 64, 128, 256, 512)
SERVERS = {"8b": (), "70b": ("model=llama-3.1-70b", "cluster.tensor_parallel=4")}
DRAFTERS = {
    "eagle": (),
    "draft_model": ("engine.speculative.method=draft_model", "engine.speculative.draft_model=llama-3.2-1b"),
}
NONE = ("engine.speculative=null",)


def runs(server: str, drafter: Sequence[str]) -> list[dict[str, Any]]:
    """Numbers of closed loops of all `USERS`, two requests each."""
    return [
        summary(
            "speculative",
            *SERVERS[server],
            *drafter,
            f"workload.arrivals.users={users}",
            f"workload.num_requests={2 * users}",
        )
        for users in USERS
    ]


def crossover(speedups: Sequence[float]) -> float:
    """Users at which a falling speed-up passes 1, between two of `USERS` on a line over the logarithm."""
    for left, right, before, after in zip(USERS, USERS[1:], speedups, speedups[1:], strict=False):
        if before >= 1 > after:
            return exp(log(left) + (log(right) - log(left)) * (before - 1) / (before - after))
    raise ValueError(f"the speed-up does not pass 1 between {USERS[0]} and {USERS[-1]} users: {speedups}")


def measure() -> dict[str, Any]:
    """Throughput with drafters over throughput without, for numbers of users on two servers."""
    measured: dict[str, Any] = {}
    for server in SERVERS:
        plain = runs(server, NONE)
        for name, drafter in DRAFTERS.items():
            drafted = runs(server, drafter)
            speedups = [a["output_throughput"] / b["output_throughput"] for a, b in zip(drafted, plain, strict=True)]
            measured |= {
                f"{name}_{server}_speedup_of_1_user": speedups[0],
                f"{name}_{server}_crossover_users": crossover(speedups),
                f"{name}_{server}_loss_of_512_users": 1 - speedups[-1],
                f"{name}_{server}_speedups": speedups,
            }
    plain, drafted = runs("8b", NONE), runs("8b", DRAFTERS["eagle"])
    return measured | {
        "plain_tpot_of_1_user_ms": plain[0]["mean_tpot_ms"],
        "tpot_of_1_user_ms": drafted[0]["mean_tpot_ms"],
        "itl_of_1_user_ms": drafted[0]["mean_itl_ms"],
        "tokens_per_pause": drafted[0]["mean_itl_ms"] / drafted[0]["mean_tpot_ms"],
        "plain_tpot_ms": [run["mean_tpot_ms"] for run in plain],
        "tpot_ms": [run["mean_tpot_ms"] for run in drafted],
        "itl_ms": [run["mean_itl_ms"] for run in drafted],
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """How much faster, over users; and pauses beside times per token."""
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    _draw_speedups(measured, left)
    right.plot(USERS, measured["plain_tpot_ms"], color=GREY, marker="o", markersize=3)
    right.plot(USERS, measured["tpot_ms"], color=BLUE, marker="o", markersize=3)
    right.plot(USERS, measured["itl_ms"], color=BLUE, marker="o", markersize=3, linestyle="--", linewidth=1)
    right.text(1.1, measured["itl_ms"][0] * 1.25, "between pieces of text (ITL)", size=7, color=BLUE)
    right.text(1.1, measured["tpot_ms"][0] * 0.66, "per token, with EAGLE (TPOT)", size=7, color=BLUE)
    right.text(1.1, measured["plain_tpot_ms"][0] * 0.78, "both, without drafts", size=7, color=FAINT)
    right.set(title="8B: what a user waits", ylabel="ms", yscale="log", ylim=(1.5, 90))
    right.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    for axes in (left, right):
        axes.set(xlabel="users at once", xscale="log")
        axes.set_xticks(USERS[::2] + USERS[-1:], [f"{users}" for users in USERS[::2] + USERS[-1:]])
        axes.minorticks_off()


def _draw_speedups(measured: dict[str, Any], axes: "Axes") -> None:
    axes.axhline(1, color=FAINT, linewidth=1)
    for (name, colour), server in (
        (pair, server) for pair in (("eagle", BLUE), ("draft_model", RED)) for server in SERVERS
    ):
        style = "-" if server == "8b" else "--"
        axes.plot(USERS, measured[f"{name}_{server}_speedups"], style, color=colour, marker="o", markersize=3)
        axes.plot(measured[f"{name}_{server}_crossover_users"], 1, "D", color=colour, markersize=5)
    axes.plot([], [], "-", color=BLUE, label="EAGLE, 8B on one H100")
    axes.plot([], [], "-", color=RED, label="1B model, 8B on one H100")
    axes.plot([], [], "--", color=BLUE, label="EAGLE, 70B on four")
    axes.plot([], [], "--", color=RED, label="1B model, 70B on four")
    axes.legend(loc="lower left", fontsize=7)
    axes.text(1, 1.02, "without drafts", size=7, color=FAINT)
    axes.set(title="Tokens/s, over those without drafts", ylim=(0, 2.4))
