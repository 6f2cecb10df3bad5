"""What a reader must know beside the numbers of a run: what was left out, assumed, cut or doubtful, in sentences."""

from collections.abc import Callable, Iterator
from typing import Any

from simserve.spec.arrivals import ClosedLoop
from simserve.spec.result import Result

Summary = dict[str, Any]


def notes_of(result: Result, summary: Summary) -> list[str]:
    """All notes on a run, each once."""
    return list(dict.fromkeys(note for notes in NOTES for note in notes(result, summary)))


def _of_model(result: Result, summary: Summary) -> Iterator[str]:  # noqa: ARG001
    """What its configuration says and nothing computes, and what was assumed of it."""
    yield from result.scenario.model.notes


def _of_lengths(result: Result, summary: Summary) -> Iterator[str]:
    """What the engine cut or refused, since it did not fit."""
    limit = result.scenario.engine.max_model_len
    if cut := summary["answers_cut"]:
        yield f"{_count(cut, 'answer')} cut: prompt and answer would be longer than engine.max_model_len = {limit}"
    if refused := summary["prompts_too_long"]:
        yield f"{_count(refused, 'prompt')} rejected: no room for an answer within engine.max_model_len = {limit}"


def _of_success(result: Result, summary: Summary) -> Iterator[str]:  # noqa: ARG001
    if summary["num_prompts"] and not summary["completed"]:
        yield "no request succeeded: no latency can be stated"


def _of_waves(result: Result, summary: Summary) -> Iterator[str]:  # noqa: ARG001
    """Whoever sends together and gets answers of one length sends together again."""
    workload = result.scenario.workload
    if workload.keeps_step and isinstance(workload.arrivals, ClosedLoop):
        users = f"{workload.arrivals.users} users with prompts and answers of one length"
        yield f"{users} send in waves, so that TTFT is that of a wave; lengths that vary, or a think time, part them"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s were' if number > 1 else ' was'}"


NOTES: tuple[Callable[[Result, Summary], Iterator[str]], ...] = (_of_success, _of_lengths, _of_waves, _of_model)
"""Where notes come from: a further source is one more line here."""
