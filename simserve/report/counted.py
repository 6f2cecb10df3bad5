"""Whose count of the prompts' tokens a replayed trace was simulated with, in words.

A client counts the words that it sends; the server adds a chat template and a BOS token and computes those too.
"""

from collections.abc import Mapping
from typing import Any


def counted_by(summary: Mapping[str, Any]) -> str | None:
    """Who counted, and how far the client was from it; None where no trace was replayed."""
    who: str | None = summary.get("input_tokens_counted_by")
    if who == "client":
        return "client (as recorded; a server adds its template)"
    share: float | None = summary.get("input_tokens_client_share")
    if who is None or share is None:
        return who
    return f"{who} (client counted {_difference(share)})"


def _difference(share: float) -> str:
    return "the same" if share == 1 else f"{100 * abs(share - 1):.1f} % {'fewer' if share < 1 else 'more'}"
