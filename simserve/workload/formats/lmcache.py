"""Agentic sessions as LMCache publishes them: JSON lines with session_id, input (a list of messages), output_length and
pre_gap (s), the pause between the answer before and this request.

A turn whose messages go on where the turn before ended is the next turn of a chat, and its prompt has room for the
recorded answer; other beginnings are known by the messages themselves, so that sessions share a system prompt.
"""

from collections.abc import Hashable, Sequence
from itertools import accumulate
from typing import Any, Final

from simserve.workload.formats.block_hashes import read_records
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Column, Heads, Options, Table, finite, plural
from simserve.workload.formats.texts import counter, text_of

LMCACHE: Final = ("session_id", "input", "output_length")


def read_lmcache(source: Source, options: Options) -> Table:
    """Read sessions, the first turn of each being without a time."""
    records, numbers, broken = read_records(source, options.rows)
    count, note = counter(source, options)
    inputs: list[int | None] = []
    ids: list[Sequence[Hashable] | None] = []
    ends: list[Sequence[int] | None] = []
    before: dict[str, tuple[list[str], int]] = {}
    anew = 0
    for row, record in enumerate(records):
        messages = record.get("input")
        if row in broken or not isinstance(messages, list) or not messages:
            broken.setdefault(row, "has no list of messages in `input`")
            inputs.append(None)
            ids.append(None)
            ends.append(None)
            continue
        session = str(record.get("session_id", ""))
        said = [_key(message) for message in messages]
        earlier, spoken = before.get(session, ([], 0))
        goes_on = bool(earlier) and said[: len(earlier)] == earlier and len(said) > len(earlier)
        if goes_on:
            # The first new message is the answer, whose recorded tokens `spoken` holds.
            tokens = spoken + sum(count(text_of(_content(message))) for message in messages[len(earlier) + 1 :])
            tokens = max(tokens, spoken + 1)
            ids.append(None)
            ends.append(None)
        else:
            anew += bool(earlier)
            stops = list(accumulate(count(text_of(_content(message))) for message in messages))
            tokens = stops[-1]
            ids.append(said)
            ends.append(stops)
        inputs.append(tokens)
        before[session] = said, tokens + int(finite(record.get("output_length")) or 0)
    sessions = [str(record.get("session_id", "")) for record in records]
    outputs = [record.get("output_length") for record in records]
    gaps = [record.get("pre_gap", 0.0) for record in records]
    columns: dict[str, Column] = {
        "client_input_len": inputs,
        "output_len": outputs,
        "session": sessions,
        "think": gaps,
    }
    notes = [note, "The file has no times: the first turn of each session comes when workload.arrivals says."]
    if anew:
        notes.append(f"{plural(anew, 'turn')} that does not go on where its session was: taken as new text.")
    return Table(
        columns,
        numbers,
        broken,
        {"output_len": ("output_length", outputs), "think": ("pre_gap", gaps)},
        heads=Heads(ids, ends),
        ignored=sorted({name for record in records for name in record} - {*LMCACHE, "pre_gap"}),
        notes=notes,
    )


def _content(message: Any) -> Any:
    return message.get("content") if isinstance(message, dict) else message


def _key(message: Any) -> str:
    role = message.get("role", "") if isinstance(message, dict) else ""
    return f"{role}\n{text_of(_content(message))}"
