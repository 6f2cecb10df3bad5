"""What became of a replayed trace, in words: what it was taken for, what was left out, what looks odd."""

from collections.abc import Mapping
from typing import Any


def recognised_as(summary: Mapping[str, Any]) -> str | None:
    """The format that a trace was taken for; None where the user stated it, or no trace was replayed."""
    trace = summary.get("trace")
    return trace["format"] if trace and trace["format_recognised"] else None


def replay_notes(summary: Mapping[str, Any]) -> list[str]:
    """Sentences on everything that was changed on the way."""
    trace = summary.get("trace")
    return [] if not trace else [f"Trace: {note}" for note in trace["notes"]]
