"""A limit on requests per minute turns the wrong ones away; a limit on tokens sees who is in the way.

Chats of 300 tokens, and now and then a document of 60,000 to 90,000. Without a limit one chat in twenty waits
{p95_ttft_ms:,.0f} ms for its first token. Two hundred requests per minute, in bursts of 10 s, refuse
{refused_requests:.0f} requests with HTTP 429, nearly all of them chats, and those that pass still wait
{p95_ttft_by_requests_ms:,.0f} ms: each document counts as one. A bucket of tokens that holds 75,000 refuses
{refused_documents_by_tokens:.0f} of {documents:.0f} documents and {refused_chats_by_tokens:.0f} chats: then it is
{p95_ttft_by_tokens_ms:.0f} ms.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import summary
from simserve.report.plots.style import BLUE, RED, plain_log_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIMITS = {
    "no limit": "cluster.rate_limit=null",
    "requests": "cluster.rate_limit={requests_per_minute: 200, tokens_per_minute: null, burst: 10 s}",
    "tokens": "cluster.rate_limit.burst=30 s",
}


def measure() -> dict[str, Any]:
    """Waits of chats, and who is refused, by limit."""
    runs = {limit: summary("rate_limit", override)["classes"] for limit, override in LIMITS.items()}
    refused = {limit: [run[name]["rejected"] for name in ("chat", "documents")] for limit, run in runs.items()}
    p95 = {limit: run["chat"]["p95_ttft_ms"] for limit, run in runs.items()}
    return {
        "documents": runs["tokens"]["documents"]["num_prompts"],
        "p95_ttft_ms": p95["no limit"],
        "p95_ttft_by_requests_ms": p95["requests"],
        "p95_ttft_by_tokens_ms": p95["tokens"],
        "refused_requests": sum(refused["requests"]),
        "refused_documents_by_requests": refused["requests"][1],
        "refused_chats_by_tokens": refused["tokens"][0],
        "refused_documents_by_tokens": refused["tokens"][1],
        "p95_ttft": list(p95.values()),
        "refused_chats": [chats for chats, _ in refused.values()],
        "refused_documents": [documents for _, documents in refused.values()],
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """What each limit does for those it lets in, and whom it turns away."""
    left, right = figure.subplots(1, 2)
    places = range(len(LIMITS))
    bars = left.bar(places, measured["p95_ttft"], color=BLUE, width=0.6)
    left.bar_label(bars, fmt="{:,.0f}", size=8, padding=2)
    left.set(title="p95 TTFT of chats, ms", yscale="log", ylim=(10, 10_000))
    plain_log_axis(left.yaxis)
    for shift, name, colour in ((-0.2, "chats", BLUE), (0.2, "documents", RED)):
        bars = right.bar(
            [place + shift for place in places], measured[f"refused_{name}"], 0.4, color=colour, label=name
        )
        right.bar_label(bars, size=8, padding=2)
    right.set(title="Refused", ylim=(0, 1.15 * max(measured["refused_chats"])))
    right.legend()
    for axes in (left, right):
        axes.set_xticks(list(places), list(LIMITS))
        axes.grid(visible=False, axis="x")
