"""Our own formats: CSV, JSON lines and parquet with the same columns.

`prefix` (JSON lines) says how a prompt begins: pairs `[id, tokens]`, tokens counted from the start of the prompt to the
end of the stretch of text that the id stands for.
"""

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, Final

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.columns import check_rows, header_of, read_csv_columns, refuse_unknown
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Heads, Options, Table, plural

INPUT_COLUMNS: Final = ("input_len", "client_input_len")
"""Prompt tokens as the server and as the client counted them; a trace has one of them or both."""
OPTIONAL_COLUMNS: Final = ("arrival", "max_tokens", "class", "priority", "session", "think")
OWN_COLUMNS: Final = (*INPUT_COLUMNS, "output_len", *OPTIONAL_COLUMNS)
PREFIX: Final = "prefix"
HEADER_FORMAT: Final = "simserve-trace"


def read_csv(source: Source, options: Options) -> Table:
    """Read a header line that names the columns, in any order, and a row per request."""
    if PREFIX in header_of(source):
        raise ScenarioError(f"{source.path}, line 1: a column {PREFIX!r} needs JSON lines: write the trace as .jsonl")
    found = read_csv_columns(source, options.rows, (INPUT_COLUMNS, ("output_len",)), OPTIONAL_COLUMNS, knows_all=True)
    return Table(found.columns, found.numbers, found.broken)


def read_jsonl(source: Source, options: Options) -> Table:
    """Read one object per request; an object with the key `format` may head the file."""
    numbers: list[int] = []
    records: list[dict[str, Any]] = []
    broken: dict[int, str] = {}
    lines = (line for line in source.records() if not _is_header(*line, source))
    for number, record, fault in islice(lines, options.rows.start, options.rows.stop):
        refuse_unknown(record, (*OWN_COLUMNS, PREFIX), f"{source.path}, line {number}")
        if fault := fault or _fault_of_prefix(record.get(PREFIX)):
            broken[len(records)] = fault
        numbers.append(number)
        records.append(record)
        check_rows(len(records), source)
    columns = _columns(records)
    heads = None
    if any(PREFIX in record for record in records):
        pairs = [None if row in broken else record.get(PREFIX) for row, record in enumerate(records)]
        heads = Heads(*([pair and [each[part] for each in pair] for pair in pairs] for part in (0, 1)))
    return Table(columns, numbers, broken, heads=heads)


def read_parquet(source: Source, options: Options) -> Table:
    """Read a parquet file with our columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source.path)
        names = list(file.schema_arrow.names)
        known = [name for name in names if name in OWN_COLUMNS]
        if "output_len" not in known or not set(INPUT_COLUMNS) & set(known):
            raise ScenarioError(
                f"{source.path}: has columns {', '.join(names)[:200]}; a trace needs input_len and output_len"
            )
        if options.rows.stop is None:
            check_rows(file.metadata.num_rows - options.rows.start, source)
        whole = file.read(columns=known)
        taken = whole.slice(options.rows.start, None if options.rows.stop is None else _length(options.rows))
        columns = {name: taken.column(name).to_pylist() for name in known}
    except (pa.ArrowException, OSError) as error:
        raise ScenarioError(f"{source.path}: cannot be read as parquet: {error}") from None
    first = options.rows.start
    numbers = range(first, first + taken.num_rows)
    return Table(columns, numbers, place="row", ignored=[name for name in names if name not in known])


def _length(rows: slice) -> int:
    return int(rows.stop - rows.start)


def _columns(records: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    found = {name for record in records for name in record}
    counted = [name for name in INPUT_COLUMNS if name in found] or ["input_len"]
    names = [*counted, "output_len", *(name for name in OPTIONAL_COLUMNS if name in found)]
    return {name: [record.get(name) for record in records] for name in names}


def _is_header(number: int, record: dict[str, Any], fault: str, source: Source) -> bool:
    if number > 1 or fault or "format" not in record:
        return False
    if record != {"format": HEADER_FORMAT}:
        raise ScenarioError(
            f'{source.path}, line 1: expected the header {{"format": "{HEADER_FORMAT}"}}, got {str(record)[:200]}'
        )
    return True


def _fault_of_prefix(pairs: object) -> str:
    """Why a prefix is none, empty where it is one."""
    if pairs is None:
        return ""
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return f"has a prefix that is not a list of [id, tokens]: {str(pairs)[:60]}"
    if not all(isinstance(name, int | str) for name, _ in pairs):
        return f"has a prefix with an id that is neither a number nor a word: {str(pairs)[:60]}"
    ends = [end for _, end in pairs]
    if not all(isinstance(end, int) and not isinstance(end, bool) and 0 < end < 1 << 31 for end in ends):
        return f"has a prefix that ends at no whole number of tokens: {str(pairs)[:60]}"
    if any(end <= before for before, end in pairwise(ends)):
        return f"has a prefix whose ends do not rise: {plural(len(ends), 'pair')}"
    return ""
