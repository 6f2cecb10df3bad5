"""BurstGPT (github.com/HPMLL/BurstGPT, CC-BY-4.0): requests to GPT-3.5 and GPT-4, in seconds from the start.

A row whose answer has no tokens is a request that failed. `Model` becomes the class of a request where there are
several. Rows of one `Session ID` are taken for the turns of a chat where every prompt has room for the prompt and the
answer before it, which the file does not state; the other sessions are left as requests that share nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from simserve.workload.formats.columns import read_csv_columns
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Column, Options, Table, plural, to_floats

BURSTGPT: Final = ("Timestamp", "Request tokens", "Response tokens")
_SESSION: Final = "Session ID"
_MODEL: Final = "Model"


def read_burstgpt(source: Source, options: Options) -> Table:
    """Read a trace by the names of its columns, whatever else is among them."""
    found = read_csv_columns(source, options.rows, [(name,) for name in BURSTGPT], (_SESSION, _MODEL))
    stamps, inputs, outputs = (found.columns[name] for name in BURSTGPT)
    columns: dict[str, Column] = {"arrival": stamps, "input_len": inputs, "output_len": outputs}
    fields = {ours: (name, found.columns[name]) for ours, name in zip(columns, BURSTGPT, strict=True)}
    failed = {
        int(row): "Response tokens is 0: the request failed"
        for row in np.flatnonzero(to_floats(outputs) == 0)
        if row not in found.broken
    }
    models = found.columns.get(_MODEL, ())
    if len({*models}) > 1:
        columns["class"] = models
    notes: list[str] = []
    if _SESSION in found.columns:
        answered = [row not in failed for row in range(len(found.numbers))]
        columns["session"], notes = growing_sessions(found.columns[_SESSION], inputs, outputs, answered)
    return Table(
        columns,
        found.numbers,
        found.broken,
        fields,
        own_clock=False,
        failed=failed,
        ignored=found.ignored,
        notes=notes,
    )


def growing_sessions(
    names: Sequence[str], inputs: Column, outputs: Column, answered: Sequence[bool]
) -> tuple[list[str], list[str]]:
    """Sessions of several rows whose prompts can hold what was said before, and a sentence on the others."""
    spoken: dict[str, float] = {}
    turns: dict[str, int] = {}
    shrinking: set[str] = set()
    lengths = zip(names, to_floats(inputs).tolist(), to_floats(outputs).tolist(), answered, strict=True)
    for name, prompt, answer, is_answered in lengths:
        if name and is_answered:
            if prompt < spoken.get(name, 0):
                shrinking.add(name)
            spoken[name] = prompt + answer
            turns[name] = turns.get(name, 0) + 1
    several = {name for name, count in turns.items() if count > 1}
    chats = several - shrinking
    notes = []
    if several:
        notes.append(
            f"{plural(len(chats), 'session')} of several requests taken for chats, whose prompts hold what was said"
            " before."
        )
    if shrinking & several:
        notes.append(
            f"In {plural(len(shrinking & several), 'session')} a prompt is shorter than what was said before: those"
            " share nothing."
        )
    return [name if name in chats else "" for name in names], notes
