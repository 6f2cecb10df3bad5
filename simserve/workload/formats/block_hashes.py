"""Traces with block hashes, one JSON object a line: timestamp, input_length, output_length, hash_ids.

Mooncake's traces (github.com/kvcache-ai/Mooncake, FAST'25: ms, 512 tokens to a block) and those of AIPerf, which add
`session_id` and `delay` (ms); the timed traces of `vllm bench serve` (s, 16) and GuideLLM's (s, 512). An id stands for
the text of its block and all before it: prompts that begin with the same ids begin with the same text.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np

from simserve.spec.errors import ScenarioError
from simserve.spec.workload import TimeUnit
from simserve.workload.formats.columns import check_rows
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Column, Heads, Options, Table, plural, to_floats

FIELDS: Final = {"timestamp": "arrival", "input_length": "input_len", "output_length": "output_len"}
_KNOWN: Final = (*FIELDS, "hash_ids", "session_id", "delay")
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_TEXTS: Final = ("text_input", "messages", "payload")
Lengths = Sequence[float]
Ids = list[Sequence[Hashable] | None]


def block_hash_reader(unit: TimeUnit, block_size: int) -> Callable[[Source, Options], Table]:
    """A reader for traces whose times are in `unit`, and whose ids stand for `block_size` tokens."""
    return partial(_read, unit=unit, usual=block_size)


def _read(source: Source, options: Options, unit: TimeUnit, usual: int) -> Table:
    records, numbers, broken = read_records(source, options.rows)
    for row, record in enumerate(records):
        if "input_length" not in record and (text := next((key for key in _TEXTS if key in record), None)):
            broken[row] = f"has {text} and no input_length: count its tokens first"
    columns: dict[str, Column] = {
        ours: [record.get(name) for record in records]
        for name, ours in FIELDS.items()
        if ours != "arrival" or any("timestamp" in record for record in records)
    }
    fields = {ours: (name, columns[ours]) for name, ours in FIELDS.items() if ours in columns}
    heads, notes = heads_of(source, records, broken, columns["input_len"], stated=options.block_size, usual=usual)
    if "arrival" in columns and options.time_unit is None:
        notes.append(f"Times are taken for {_UNITS[unit]}, which the file does not say; workload.trace.time_unit does.")
    if any("session_id" in record for record in records):
        heads = _as_chats(records, columns, heads, notes)
        fields.pop("input_len")
    if any("delay" in record for record in records):
        delays = [record.get("delay") for record in records]
        columns["think"] = delays
        fields["think"] = ("delay", delays)
    return Table(
        columns,
        numbers,
        broken,
        fields,
        own_clock=False,
        unit=unit,
        heads=heads,
        ignored=sorted({name for record in records for name in record} - {*_KNOWN}),
        notes=notes,
    )


def read_records(source: Source, rows: slice) -> tuple[list[dict[str, Any]], list[int], dict[int, str]]:
    """Objects of the lines of a file, where they stand, and which lines hold none."""
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    broken: dict[int, str] = {}
    for number, record, fault in islice(source.records(), rows.start, rows.stop):
        if fault:
            broken[len(records)] = fault
        records.append(record)
        numbers.append(number)
        check_rows(len(records), source)
    return records, numbers, broken


def heads_of(
    source: Source,
    records: Sequence[dict[str, Any]],
    broken: dict[int, str],
    inputs: Column,
    *,
    stated: int | None,
    usual: int,
) -> tuple[Heads | None, list[str]]:
    """How the prompts begin by their `hash_ids`, and what was found out about the size of a block.

    Rows whose ids are no list, or more than their prompt has blocks, are added to `broken`.
    """
    ids: Ids = [record.get("hash_ids") for record in records]
    for row, each in enumerate(ids):
        if each is not None and not (isinstance(each, list) and all(isinstance(one, int | str) for one in each)):
            broken.setdefault(row, f"has hash_ids that are not a list of ids: {str(each)[:60]}")
            ids[row] = None
    if not any(ids):
        return None, []
    lengths = to_floats(inputs).tolist()
    size, notes = (stated, []) if stated else _block_size(source, ids, lengths, usual)
    ends: list[Sequence[int] | None] = []
    for row, (each, length) in enumerate(zip(ids, lengths, strict=True)):
        if each is None or not 1 <= length < math.inf:
            ends.append(None)
            ids[row] = None
        elif len(each) > math.ceil(length / size):
            broken.setdefault(row, f"has {len(each)} hash_ids for {length:g} tokens, blocks being of {size} tokens")
            ends.append(None)
            ids[row] = None
        else:
            ends.append([min(size * (block + 1), int(length)) for block in range(len(each))])
    notes.append(
        f"Prompts begin alike as far as their hashes of {size} tokens agree; that a prompt holds an earlier answer they"
        " do not say, so that hits on answers are missing."
    )
    return Heads(ids, ends), notes


def _block_size(source: Source, ids: Ids, lengths: Lengths, usual: int) -> tuple[int, list[str]]:
    """The size of a block that the numbers of ids fit: the usual one, or the power of two that fits better."""
    counted = [
        (len(each), length)
        for each, length in zip(ids, lengths, strict=True)
        if each and math.isfinite(length) and length >= 1
    ]
    telling = [(count, length) for count, length in counted if count > 1] or counted
    if not telling:
        return usual, []
    count, length = np.array(telling).T
    shares = {size: _share_that_fits(count, length, size) for size in (usual, *(1 << power for power in range(13)))}
    size = max(shares, key=lambda each: shares[each])  # the first of equals, the usual one
    if shares[size] < 0.9:
        raise ScenarioError(
            f"{source.path}: the numbers of hash_ids fit no size of block (usual: {usual}): the first row with ids has"
            f" {telling[0][0]} for {telling[0][1]:g} tokens; state workload.trace.block_size"
        )
    if size == usual:
        return usual, []
    return size, [f"The numbers of hash_ids fit blocks of {size} tokens, not the usual {usual}: {size} is taken."]


def _share_that_fits(count: Any, length: Any, size: int) -> float:
    """Share of the rows whose ids are as many as blocks were begun, or as were filled, whichever the file counts."""
    return float(max(np.mean(count == np.ceil(length / size)), np.mean(count == np.floor(length / size))))


def _as_chats(
    records: Sequence[dict[str, Any]], columns: dict[str, Column], heads: Heads | None, notes: list[str]
) -> Heads | None:
    """Put sessions into the columns. The turns of AIPerf state what is new in them: prompts become all that was said.

    Where the ids of a turn begin with those of the turn before, its length is that of the whole prompt already, and the
    ids say what is shared.
    """
    sessions = ["" if record.get("session_id") is None else str(record["session_id"]) for record in records]
    ids: Ids = list(heads.ids) if heads else [None] * len(records)
    ends = list(heads.ends) if heads else [None] * len(records)
    inputs, outputs = (to_floats(columns[name]).tolist() for name in ("input_len", "output_len"))
    before: dict[str, int] = {}
    added = 0
    for row, name in enumerate(sessions):
        last = before.get(name) if name else None
        if name:
            before[name] = row
        if last is None:
            continue
        mine, earlier = ids[row], ids[last]
        if mine and earlier and list(mine[: len(earlier) - 1]) == list(earlier[:-1]) and len(earlier) > 1:
            continue
        inputs[row] += inputs[last] + outputs[last]
        ids[row] = ends[row] = None
        added += 1
    columns["input_len"] = np.array(inputs, dtype=np.float64)
    columns["session"] = sessions
    if added:
        notes.append(
            f"input_length of {plural(added, 'later turn')} of sessions is taken for what is new in it: the prompts are"
            " those tokens and all that was said before, as AIPerf sends them."
        )
    return Heads(ids, ends) if heads else None
