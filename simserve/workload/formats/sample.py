"""The beginning of a trace file: what kind of file it is and which names it uses, enough to recognise its format."""

from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.columns import header_of
from simserve.workload.formats.source import Source
from simserve.workload.trace_report import printable

Kind = Literal["csv", "json lines", "json", "parquet"]
_LOOKED_AT = 20
"""Lines or entries."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`names` are the columns of a CSV, or the keys of `records`: the first lines or entries that are objects.

    `is_list` tells a JSON file that is one list from one that is an object, or several.
    """

    kind: Kind
    names: tuple[str, ...]
    records: tuple[dict[str, Any], ...] = ()
    is_list: bool = False

    def has(self, *names: str) -> bool:
        """Whether all of these are among the names, whatever their case in a CSV."""
        if self.kind == "csv":
            return {name.casefold() for name in names} <= {name.casefold() for name in self.names}
        return {*names} <= {*self.names}

    @property
    def described(self) -> str:
        """What a person would call it."""
        what = {"csv": "CSV with the columns", "json lines": "JSON lines with the keys", "json": "JSON with the keys"}
        shown = printable(", ".join(self.names[:12])) or "none"
        return f"{what.get(self.kind, self.kind)} {shown[:200]}{', ...' if len(self.names) > 12 else ''}"


def sample_of(source: Source) -> Sample:
    """Look at the beginning of a file; a JSON document is parsed whole, and once.

    Raises:
        ScenarioError: it cannot be read, is empty, or begins as JSON and is none.
    """
    if source.is_parquet:
        return Sample("parquet", ())
    first = _first_sign(source)
    if not first:
        raise ScenarioError(f"{source.path}: is empty")
    if first not in "{[":
        return Sample("csv", tuple(header_of(source)))
    if first == "{":
        lines = list(islice(source.records(), _LOOKED_AT))
        objects = tuple(record for _, record, fault in lines if not fault and record)
        # One object on one line may be a benchmark's whole result: both are "json lines" and told apart by their keys.
        if objects and (not lines[0][2] or len(objects) * 2 > len(lines)):
            return Sample("json lines", _keys(objects), objects)
    documents = source.documents
    entries = documents[0] if isinstance(documents[0], list) else documents
    objects = tuple(entry for entry in entries[:_LOOKED_AT] if isinstance(entry, dict))
    return Sample("json", _keys(objects), objects, is_list=isinstance(documents[0], list))


def _first_sign(source: Source) -> str:
    with source.text() as file:
        while chunk := file.read(4096):
            if text := chunk.strip():
                return text[0]
    return ""


def _keys(records: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for record in records for name in record))
