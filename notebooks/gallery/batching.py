"""Thirty-two users on one GPU wait hardly longer for a token than one alone.

A decode step reads all weights once, whoever waits: with 32 users a token takes {tpot_of_32_users_ms:.2f} ms, not
{tpot_of_1_user_ms:.2f} ms, and the GPU makes {throughput_of_32_users_over_1:.0f} times as many tokens. From about
{users_where_compute_takes_over:.0f} users on, multiplying takes longer than reading the weights. Then throughput is
bought with everybody's speed: 1,024 users get hardly more than 512 together, and {speed_of_1024_users_over_512:.0%} of
the speed each.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import kernels, share_bound_by, summary
from simserve.report.plots.style import BLUE, FAINT, RED, plain_log_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTEXT = 200


def with_users(users: int) -> dict[str, Any]:
    """Numbers of a closed loop of so many users, two requests each."""
    return summary("batching", f"workload.arrivals.users={users}", f"workload.num_requests={2 * users}")


def first_bound_by_compute(sizes: Iterable[int]) -> int:
    """The smallest batch whose matrix products are bound by FLOPs for most of their time."""
    for size in sizes:
        products = [
            kernel for kernel in kernels("batching", decodes=size, context=size * CONTEXT) if kernel.group == "linear"
        ]
        if share_bound_by("compute", products) > 0.5:
            return size
    raise ValueError("bound by bandwidth throughout")


def measure() -> dict[str, Any]:
    """Speed of one user and of all together, over numbers of users."""
    runs = [with_users(users) for users in USERS]
    tpot = dict(zip(USERS, [run["mean_tpot_ms"] for run in runs], strict=True))
    throughput = dict(zip(USERS, [run["output_throughput"] for run in runs], strict=True))
    return {
        "tpot_of_1_user_ms": tpot[1],
        "tpot_of_32_users_ms": tpot[32],
        "tpot_of_512_users_ms": tpot[512],
        "throughput_of_32_users_over_1": throughput[32] / throughput[1],
        "throughput_of_1024_users_over_512": throughput[1024] / throughput[512],
        "speed_of_1024_users_over_512": tpot[512] / tpot[1024],
        "users_where_compute_takes_over": first_bound_by_compute(range(8, 1025, 8)),
        "users": USERS,
        "output_tokens_per_s": list(throughput.values()),
        "tokens_per_s_and_user": [1e3 / time for time in tpot.values()],
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Throughput over users, and the price of it: the speed of each."""
    left, right = figure.subplots(1, 2)
    total, each = measured["output_tokens_per_s"], measured["tokens_per_s_and_user"]
    turn = measured["users_where_compute_takes_over"]
    left.loglog(USERS, [total[0] * users for users in USERS], color=FAINT, linestyle=":", linewidth=1)
    left.loglog(USERS, total, color=BLUE, marker="o", markersize=3)
    left.text(90, total[0] * 120, "each as fast as one alone", size=7, color=FAINT, ha="right")
    left.axvline(turn, color=RED, linewidth=1)
    left.text(turn * 0.9, total[0] * 1.1, "compute takes over", size=7, color=RED, ha="right")
    left.set(title="All together", xlabel="users at once", ylabel="output tokens/s")
    left.set_xticks(USERS[::2], [f"{users:,}" for users in USERS[::2]])
    left.minorticks_off()
    plain_log_axis(left.yaxis)
    right.plot(each, total, color=BLUE, marker="o", markersize=3)
    for users, x, y in zip(USERS, each, total, strict=True):
        if users in {1, 32, 64, 128, 256, 512, 1024}:
            right.annotate(f"{users:,}", (x, y), (4, 2), textcoords="offset points", size=7)
    right.set(
        title="Against the speed of each", xlabel="tokens/s of one user", ylabel="output tokens/s", ylim=(0, None)
    )
    right.set_xlim(0, 1.12 * max(each))
