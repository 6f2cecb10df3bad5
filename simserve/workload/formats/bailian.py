"""Traces of Alibaba's Bailian, Qwen-Bailian (github.com/alibaba-edu/qwen-bailian-usagetraces-anon): JSON lines with
chat_id, parent_chat_id, timestamp (s), input_length, output_length, type, turn and hash_ids of 16 tokens.

Every request has its own time and its own ids, which say what it shares: the turns of a chat are a name for the report.
"""

from typing import Final

from simserve.workload.formats.block_hashes import FIELDS, heads_of, read_records
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Column, Options, Table

BAILIAN: Final = ("chat_id", "parent_chat_id")
_BLOCK_SIZE: Final = 16


def read_bailian(source: Source, options: Options) -> Table:
    """Read a trace; `type` becomes the class of a request where there are several."""
    records, numbers, broken = read_records(source, options.rows)
    columns: dict[str, Column] = {ours: [record.get(name) for record in records] for name, ours in FIELDS.items()}
    fields = {ours: (name, columns[ours]) for name, ours in FIELDS.items()}
    heads, notes = heads_of(source, records, broken, columns["input_len"], stated=options.block_size, usual=_BLOCK_SIZE)
    types = [str(record.get("type") or "") for record in records]
    if len({*types}) > 1:
        columns["class"] = types
    used = {*FIELDS, "hash_ids", "type"}
    return Table(
        columns,
        numbers,
        broken,
        fields,
        own_clock=False,
        heads=heads,
        ignored=sorted({name for record in records for name in record} - used),
        notes=notes,
    )
