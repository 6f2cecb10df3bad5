"""A burst of chats waits for the one thread that reads them before it waits for the GPU.

An API server reads requests in one thread, a piece of each in turn. Where it takes 13.3 ms a chat (vLLM 0.11.0 parsed
the chat template anew for each), of a thousand chats sent at once none has a first token before
{first_of_slow_s:.1f} s, although the GPU needs {median_without_s:.2f} s for half of them. Later versions take 1.8 ms:
half of the first tokens are there after {median_of_fast_s:.1f} s. Four servers for the slow version
(`--api-server-count 4`) make it {median_of_four_s:.1f} s.

Under a steady load the thread is a queue before the queue. At {busiest_rate:.0f} chats a second it is busy
{share_busy:.0%} of the time and the GPU is not: one chat in twenty waits {p95_of_slow_ms:,.0f} ms for its first token,
with four servers {p95_of_four_ms:,.0f} ms.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from notebooks.gallery._runs import run, scenario, summary
from simserve.report.metrics import ttft
from simserve.report.plots.style import BLUE, GREEN, GREY, RED, plain_log_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAST = "cost.host.front_end_busy=1.8 ms"
WITHOUT = "cost.host.front_end_busy=0"
FOUR = "cluster.api_servers=4"
SERVERS = {
    "nothing": (WITHOUT, "cluster.api_servers=null"),
    "1.8 ms": (FAST,),
    "13.3 ms of 1 in 4": (FOUR,),
    "13.3 ms": (),
}
COLOURS = dict(zip(SERVERS, (GREY, GREEN, BLUE, RED), strict=True))
RATES = (10, 20, 30, 40, 50, 60, 65, 70)
SHARES = np.linspace(0, 100, 201)


def p95_at(rate: float, *overrides: str) -> float:
    """The 95th percentile of TTFT in ms, of a steady load of so many chats a second."""
    steady = f"workload.arrivals={{process: poisson, rate: {rate}}}"
    value: float = summary("api_server", steady, "workload.num_requests=3000", *overrides)["p95_ttft_ms"]
    return value


def measure() -> dict[str, Any]:
    """Waits for first tokens: of a burst, and under steady loads."""
    waits = {name: ttft(run("api_server", *overrides).requests) for name, overrides in SERVERS.items()}
    slow = [p95_at(rate) for rate in RATES]
    four = [p95_at(rate, FOUR) for rate in RATES]
    busy = scenario("api_server").cost.host.front_end_busy
    return {
        "first_of_slow_s": waits["13.3 ms"].min(),
        "median_without_s": np.median(waits["nothing"]),
        "median_of_fast_s": np.median(waits["1.8 ms"]),
        "median_of_four_s": np.median(waits["13.3 ms of 1 in 4"]),
        "busiest_rate": RATES[-1],
        "share_busy": RATES[-1] * busy,
        "p95_of_slow_ms": slow[-1],
        "p95_of_four_ms": four[-1],
        "p95_of_slow": slow,
        "p95_of_four": four,
    } | {f"waits {name}": np.percentile(each, SHARES).tolist() for name, each in waits.items()}


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """First tokens of the burst by their order, and the tail under steady loads."""
    left, right = figure.subplots(1, 2)
    for name, colour in COLOURS.items():
        left.plot(measured[f"waits {name}"], SHARES, color=colour, label=name)
    left.set(title="A thousand chats at once", xlabel="time to first token (s)", ylabel="chats, %", ylim=(0, 100))
    left.legend(loc="center", bbox_to_anchor=(0.61, 0.5), title="a chat takes")
    right.plot(RATES, measured["p95_of_slow"], color=RED, marker="o")
    right.plot(RATES, measured["p95_of_four"], color=BLUE, marker="o")
    right.set(title="p95 TTFT under a steady load, ms", xlabel="chats per second", yscale="log")
    plain_log_axis(right.yaxis)
