"""A burst of 20 s takes a server down for good if its clients try again; a limit on its queue keeps it up.

Before and after the burst 3 requests a second come, and the server can do {capacity:.1f}. Clients give up after 20 s
and hang up, so that nothing of them stays in the engine. If that is all they do, the server is soon itself again: of
those who come between a minute and 220 s after the burst, {answered_without_retries:.0%} are answered while the load
lasts. If they try again twice, as OpenAI's SDK does, everybody who is served has waited too long already, and leaves
for his next attempt: {answered_with_retries:.0%} are answered, and {answered_with_long_pauses:.0%} with pauses of up
to 20 and 40 s and full jitter in place of half a second and one. Only the end of the load ends the storm. A queue of
at most 48 (`max_num_queued_reqs`, HTTP 503 beyond) turns away at once what it cannot serve in time:
{answered_with_limit:.0%} are answered, and of all, the burst included, {answered_in_all_with_limit:.0%}, in place of
{answered_in_all_without_retries:.0%} if nobody tries again and {answered_in_all_with_retries:.0%} in the storm.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from notebooks.gallery._runs import run
from simserve.report.plots.style import BLUE, FAINT, GREEN, RED, YELLOW
from simserve.spec.result import COMPLETED, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPEN = "engine.max_num_queued_reqs=null"
CLIENTS = {
    "no retries": (OPEN, "workload.client.retries=0"),
    "two retries": (OPEN,),
    "after long pauses": (OPEN, "workload.client.backoff={initial: 20 s, max: 40 s, jitter: 1}"),
    "two retries, and a limit": (),
}
PATIENT = (
    OPEN,
    "workload.client=null",
    "workload.arrivals={process: poisson, rate: 8}",
    "workload.duration=200 s",
)
"""Nobody gives up, and more come than the server can do."""
COLOURS = dict(zip(CLIENTS, (FAINT, RED, YELLOW, GREEN), strict=True))
BURST = 60, 80
RECOVERED = 140, 300
END = 400
BIN = 10
TIMES = np.arange(0, END + 1, BIN)


def answered(result: Result, since: float, until: float, by: float = np.inf) -> float:
    """Share of the requests that came from `since` until `until` which were answered, and by then."""
    requests = result.requests
    came = (requests["arrival"] >= since) & (requests["arrival"] < until)
    return float(np.mean((requests["status"][came] == COMPLETED) & (requests["finish"][came] <= by)))


def per_second(times: Any) -> list[float]:
    """How many of some times fall into each stretch of `TIMES`, per second."""
    counts: list[float] = (np.histogram(times, TIMES)[0] / BIN).tolist()
    return counts


def measure() -> dict[str, Any]:
    """What becomes of requests, and what comes and goes over time, by kind of client."""
    runs = {kind: run("retry_storm", *overrides) for kind, overrides in CLIENTS.items()}
    late = {kind: answered(result, *RECOVERED, by=END) for kind, result in runs.items()}
    attempts = {kind: len(result.attempts["request"]) / len(result.requests["status"]) for kind, result in runs.items()}
    in_all = {kind: answered(result, 0, END) for kind, result in runs.items()}
    finish = run("retry_storm", *PATIENT).requests["finish"]
    return {
        "capacity": float(np.sum((finish > 100) & (finish <= 200)) / 100),
        "answered_without_retries": late["no retries"],
        "answered_with_retries": late["two retries"],
        "answered_with_long_pauses": late["after long pauses"],
        "answered_with_limit": late["two retries, and a limit"],
        "answered_in_all_without_retries": in_all["no retries"],
        "answered_in_all_with_retries": in_all["two retries"],
        "answered_in_all_with_limit": in_all["two retries, and a limit"],
        "attempts_per_request": attempts["two retries"],
        "attempts_per_request_with_limit": attempts["two retries, and a limit"],
        "attempts_per_s": [per_second(result.attempts["arrival"]) for result in runs.values()],
        "answers_per_s": [per_second(result.requests["finish"]) for result in runs.values()],
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Attempts that come, and answers that reach their clients, over time."""
    top, bottom = figure.subplots(2, 1, sharex=True)
    for axes, name in ((top, "attempts_per_s"), (bottom, "answers_per_s")):
        axes.axvspan(*BURST, color=BLUE, alpha=0.12, linewidth=0)
        for kind, counts in zip(CLIENTS, measured[name], strict=True):
            axes.stairs(counts, TIMES, baseline=None, color=COLOURS[kind], label=kind, linewidth=1.4)
    top.set(title="Attempts a second", yscale="log", ylim=(1, 40))
    top.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    top.minorticks_off()
    top.text(sum(BURST) / 2, 28, "burst", size=8, color=BLUE, ha="center")
    bottom.set(title="Answers a second", xlabel="s", xlim=(0, END), ylim=(0, 8))
    bottom.legend(ncols=4, loc="upper right")
