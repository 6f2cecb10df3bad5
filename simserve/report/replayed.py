"""What became of a replayed trace, in words: what it was taken for, what was left out, what looks odd."""

from collections.abc import Mapping
from typing import Any


def replayed_as(summary: Mapping[str, Any]) -> str | None:
    """The format of the trace of a run, and whether it was recognised; None where no trace was replayed."""
    trace = summary.get("trace")
    if not trace:
        return None
    return f"{trace['format']}{' (recognised)' if trace['format_recognised'] else ''}"


def replay_notes(summary: Mapping[str, Any]) -> list[str]:
    """Sentences on everything that was changed on the way."""
    trace = summary.get("trace")
    return [] if not trace else [f"Trace: {note}" for note in trace["notes"]]
