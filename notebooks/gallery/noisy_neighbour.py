"""A few documents among chats make one chat in twenty wait a hundred times the median; the mean is what nobody sees.

All chats are alike: 300 tokens in, 100 out. What differs is who else is there. {documents:.0f} of {requests:,.0f}
requests are documents of 60,000 to 100,000 tokens, whose prompts take the whole budget of each step for seconds. The
median of {median_ttft_ms:.0f} ms knows nothing of them, the mean of {mean_ttft_ms:.0f} ms is what hardly anybody sees,
and one chat in twenty waits {p95_ttft_ms:,.0f} ms or longer. `engine.long_prefill_token_threshold=2048` leaves room in
each step: then it is {p95_ttft_with_threshold_ms:.0f} ms.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from notebooks.gallery._runs import run, summary
from simserve.report.metrics import ttft
from simserve.report.plots.style import BLUE, FAINT, GREEN, RED, plain_log_axis
from simserve.spec.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALONE = "workload.classes=[{name: chat, share: 1, input: 300, output: 100}]"
THRESHOLD = "engine.long_prefill_token_threshold=2048"
SHARES = np.linspace(0, 100, 401)


def chat_waits(result: Result) -> list[float]:
    """Seconds to the first token of a chat, by rank: at each of `SHARES`."""
    chats = ttft(result.requests)[result.requests["class_index"] == 0]
    waits: list[float] = np.percentile(chats, SHARES).tolist()
    return waits


def measure() -> dict[str, Any]:
    """Waits of chats among documents, alone, and with shorter chunks."""
    among, alone = summary("noisy_neighbour"), summary("noisy_neighbour", ALONE)
    chat, calmer = among["classes"]["chat"], summary("noisy_neighbour", THRESHOLD)["classes"]["chat"]
    return {
        "requests": among["num_prompts"],
        "documents": among["classes"]["documents"]["num_prompts"],
        "mean_ttft_ms": chat["mean_ttft_ms"],
        "median_ttft_ms": chat["median_ttft_ms"],
        "p95_ttft_ms": chat["p95_ttft_ms"],
        "p95_ttft_alone_ms": alone["p95_ttft_ms"],
        "p95_ttft_with_threshold_ms": calmer["p95_ttft_ms"],
        "waits": chat_waits(run("noisy_neighbour")),
        "waits_alone": chat_waits(run("noisy_neighbour", ALONE)),
        "waits_with_threshold": chat_waits(run("noisy_neighbour", THRESHOLD)),
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """How long which share of the chats waits."""
    axes = figure.subplots()
    for name, label, colour in (
        ("waits_alone", "alone", BLUE),
        ("waits_with_threshold", "chunks of 2,048 tokens", GREEN),
        ("waits", "among documents", RED),
    ):
        axes.semilogy(SHARES, [1e3 * wait for wait in measured[name]], color=colour, label=label)
    for name, label in (("median", "median"), ("mean", "mean"), ("p95", "p95")):
        wait = measured[f"{name}_ttft_ms"]
        share = float(np.interp(wait, 1e3 * np.array(measured["waits"]), SHARES))
        axes.plot([share], [wait], color=RED, marker="o", markersize=4)
        axes.annotate(f"{label} {wait:,.0f} ms", (share, wait), (-6, 3), textcoords="offset points", ha="right", size=8)
    axes.axvline(95, color=FAINT, linewidth=0.8, linestyle=":")
    axes.set(title="First token of a chat", xlabel="share of the chats that wait less, %", ylabel="ms", xlim=(0, 100))
    plain_log_axis(axes.yaxis)
    axes.legend(loc="upper left")
