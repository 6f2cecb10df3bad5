"""What became of a trace on its way in: how many rows were taken, which were left out and why, what was ignored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


def printable(text: str) -> str:
    """Words of a file without what would command a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """An account of one reading of a trace. `rows` are those of the window that limit and offset take.

    `left_out` rows are in `rows` and not in `requests`; `first_left_out` names the first and its fault. `sorted_rows`
    stood behind a later one and were put in order. `notes` are sentences on what was taken for granted and on what
    looks odd.
    """

    format: str
    is_recognised: bool
    rows: int
    requests: int
    left_out: int = 0
    first_left_out: str = ""
    sorted_rows: int = 0
    ignored_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "format": self.format,
            "format_recognised": self.is_recognised,
            "rows": self.rows,
            "requests": self.requests,
            "left_out": self.left_out,
            "first_left_out": printable(self.first_left_out) or None,
            "sorted_rows": self.sorted_rows,
            "ignored_columns": list(self.ignored_columns),
            "notes": list(self.sentences()),
        }

    def sentences(self) -> Iterator[str]:
        """Everything that was changed on the way, and what is worth a look."""
        return map(printable, self._sentences())

    def _sentences(self) -> Iterator[str]:
        if self.left_out:
            yield f"{self.left_out:,} of {self.rows:,} rows left out, the first at {self.first_left_out}."
        if self.sorted_rows:
            yield f"{self.sorted_rows:,} rows stood behind a later one and were put in order of time."
        if self.ignored_columns:
            yield f"Columns not used: {', '.join(self.ignored_columns)}."
        yield from self.notes
