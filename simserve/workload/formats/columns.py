"""Tables with a header line: fields by the name of their column, divided by commas, semicolons, tabs or bars."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from simserve.spec.errors import ScenarioError
from simserve.spec.strict import nearest
from simserve.workload.formats.source import LONGEST_LINE, MOST_ROWS, Source

DIVIDERS: Final = ",;\t|"


class Csv(NamedTuple):
    """Columns by the names that were asked for, lines of the rows, rows that are none, and columns nobody asked for."""

    columns: Mapping[str, Sequence[str]]
    numbers: list[int]
    broken: dict[int, str]
    ignored: list[str]


def read_csv_columns(
    source: Source,
    rows: slice,
    required: Sequence[Sequence[str]],
    optional: Sequence[str] = (),
    *,
    knows_all: bool = False,
) -> Csv:
    """Columns of a CSV; of each group in `required` at least one must be there. `knows_all` refuses any other column.

    Raises:
        ScenarioError: a column is missing, is there twice, or is not known.
    """
    wanted = [*(name for names in required for name in names), *optional]
    numbers: list[int] = []
    records: list[list[str]] = []
    reader = _reader(source)
    header = next(reader, (1, []))[1]
    names = _names(header, wanted, exact=knows_all)
    _check_header(names, required, wanted, f"{source.path}, line 1", knows_all)
    for number, record in islice((row for row in reader if row[1]), rows.start, rows.stop):
        numbers.append(number)
        records.append(record)
        check_rows(len(records), source)
    width = len(names)
    broken = {
        row: f"has {len(record)} fields, the header has {width}"
        for row, record in enumerate(records)
        if len(record) != width
    }
    for row in broken:
        records[row] = [""] * width
    columns = zip(*records, strict=True) if records else ((),) * width
    found: dict[str, Sequence[str]] = dict(zip(names, columns, strict=True))
    ignored = [name for name in names if name not in wanted]
    return Csv({name: found[name] for name in names if name in wanted}, numbers, broken, ignored)


def header_of(source: Source) -> list[str]:
    """Fields of the first line."""
    return [name.strip() for name in next(_reader(source), (1, []))[1]]


def bare_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV that has no header, with their lines; blank ones are passed over."""
    return (row for row in _reader(source) if row[1])


def check_rows(count: int, source: Source) -> None:
    """Stop where a trace is too long to be held."""
    if count > MOST_ROWS:
        raise ScenarioError(
            f"{source.path}: has more than {MOST_ROWS:,} rows; take a part of it with workload.trace.limit and offset"
        )


def _reader(source: Source) -> Iterator[tuple[int, list[str]]]:
    lines = source.lines(LONGEST_LINE)
    first = next(lines, "")
    divider = max(DIVIDERS, key=first.count) if any(sign in first for sign in DIVIDERS) else ","
    reader = csv.reader(_again(first, lines), delimiter=divider)
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error as error:
        raise ScenarioError(
            f"{source.path}, line {reader.line_num}: cannot be read as a row: {error}; is it CSV?"
        ) from None


def _again(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _names(header: Iterable[str], wanted: Sequence[str], exact: bool) -> list[str]:
    """Names of a header, spelled as they are wanted where only case differs."""
    spelled = {} if exact else {name.casefold(): name for name in wanted}
    return [spelled.get(name.strip().casefold(), name.strip()) for name in header]


def _check_header(
    header: Sequence[str], required: Sequence[Sequence[str]], wanted: Sequence[str], place: str, knows_all: bool
) -> None:
    if knows_all:
        refuse_unknown(header, wanted, place)
    missing = [names for names in required if not any(name in header for name in names)]
    if missing:
        raise ScenarioError(f"{place}: the header {','.join(header)[:200]!r} has no column {missing[0][0]!r}")
    twice = sorted({name for name in header if name in wanted and header.count(name) > 1})
    if twice:
        raise ScenarioError(f"{place}: the header {','.join(header)[:200]!r} names a column twice: {twice[0]!r}")


def refuse_unknown(names: Iterable[str], known: Sequence[str], place: str) -> None:
    """Raise for a name that is not known, with the nearest one."""
    for name in names:
        if name not in known:
            near = nearest(name, known)
            remedy = f"did you mean {near!r}?" if near else f"expected some of {', '.join(known)}"
            raise ScenarioError(f"{place}: unknown column {name!r}; {remedy}")
