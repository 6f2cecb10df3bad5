"""What a reader must know beside the numbers of a run: what was left out, assumed, cut or doubtful, in sentences."""

from collections.abc import Callable, Iterator
from typing import Any

from simserve.spec.result import Result

Summary = dict[str, Any]


def notes_of(result: Result, summary: Summary) -> list[str]:
    """All notes on a run, each once."""
    return list(dict.fromkeys(note for notes in NOTES for note in notes(result, summary)))


def _of_model(result: Result, summary: Summary) -> Iterator[str]:  # noqa: ARG001
    """What its configuration says and nothing computes, and what was assumed of it."""
    model = result.scenario.model
    yield from (f"left out of {model.name}: {what}" for what in model.left_out)
    yield from (f"{model.name}: {what}" for what in model.warnings)


NOTES: tuple[Callable[[Result, Summary], Iterator[str]], ...] = (_of_model,)
"""Where notes come from: a further source is one more line here."""
