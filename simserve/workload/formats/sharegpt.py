"""ShareGPT: a JSON list of `{id, conversations: [{from, value}, ...]}`, or such objects one a line; texts, no times.
Conversations under `conversation`, with `role` and `content`, as LMSYS has them, are taken, too.

The first question and its answer are taken, as benchmarks do, or with `turns: all` the whole conversation as a chat.
`vllm bench serve` also drops very short and very long ones, which is not done here.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Column, Options, Table, dig, first_of, plural
from simserve.workload.formats.texts import counter, text_of

CONVERSATIONS: Final = ("conversations", "conversation")
_PERSONS: Final = ("human", "user")
_MODELS: Final = ("gpt", "chatgpt", "assistant", "bing", "bard")


def read_sharegpt(source: Source, options: Options) -> Table:
    """Read the exchanges of all conversations."""
    first = source.documents[0]
    conversations = first if isinstance(first, list) else source.documents
    count, note = counter(source, options)
    rows: list[tuple[int, int, int, str]] = []
    silent = later = 0
    for number, conversation in enumerate(conversations):
        exchanges = list(_exchanges(conversation))
        silent += not exchanges
        taken = exchanges if options.turns == "all" else exchanges[:1]
        later += len(exchanges) - len(taken)
        spoken = 0
        for prompt, answer in taken:
            lengths = spoken + count(prompt), count(answer)
            rows.append((number, *lengths, str(number) if len(taken) > 1 else ""))
            spoken = sum(lengths)
    rows = list(islice(rows, options.rows.start, options.rows.stop))
    notes = [note]
    if silent:
        notes.append(f"{plural(silent, 'conversation')} without a question that is answered left out.")
    if later:
        notes.append(f"{plural(later, 'later turn')} left out; workload.trace.turns: all takes them.")
    numbers, inputs, outputs, sessions = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 4
    columns: dict[str, Column] = {"client_input_len": inputs, "output_len": outputs}
    if any(sessions):
        columns |= {"session": sessions, "think": [0.0 if name else None for name in sessions]}
        notes.append("The pauses between turns are not in the file: each turn follows the answer before it at once.")
    return Table(columns, numbers, place="conversation", notes=notes)


def _exchanges(conversation: Any) -> Iterator[tuple[str, str]]:
    """Pairs of what a person said since the last answer and what the model answered."""
    turns = first_of(*(dig(conversation, key) for key in CONVERSATIONS))
    asked = ""
    for turn in turns if isinstance(turns, list) else []:
        if not isinstance(turn, dict):
            continue
        who, text = str(turn.get("from", turn.get("role", ""))).lower(), text_of(turn.get("value", turn.get("content")))
        if who in _MODELS:
            if asked and text:
                yield asked, text
            asked = ""
        else:
            asked += text if who in _PERSONS or not asked else f"\n{text}"
