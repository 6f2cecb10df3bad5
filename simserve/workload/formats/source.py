"""A trace file as text: plain, gzipped or zstandard, in UTF-8 or UTF-16, within bounds that keep a machine alive.

Compression and encoding are told by the first bytes, not by the name of the file.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

from simserve.spec.errors import ScenarioError

MOST_BYTES: Final = 4 << 30
"""Of a file when unpacked."""
LONGEST_LINE: Final = 1 << 20
"""Characters of a row of CSV."""
LONGEST_RECORD: Final = 1 << 28
"""Characters of a line of JSON: the whole result of a benchmark is one."""
MOST_ROWS: Final = 5_000_000
GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
PARQUET: Final = b"PAR1"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


class Source:
    """A trace file; what was parsed for recognition is not parsed again for reading.

    Every method raises ScenarioError where the file cannot be opened, is not text, or goes beyond a bound.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def is_parquet(self) -> bool:
        """Whether its first bytes are those of a parquet file."""
        with self._complaints(), self._raw() as raw:
            return raw.read(4) == PARQUET

    @contextmanager
    def text(self) -> Iterator[TextIO]:
        """The file as text, its line ends as they are."""
        with self._complaints(), self._raw() as raw, _unpacked(raw, self.path) as data:
            encoding = "utf-16" if data.peek(2)[:2] in _UTF16 else "utf-8-sig"
            yield io.TextIOWrapper(cast(BinaryIO, data), encoding=encoding, newline="")

    def lines(self, longest: int = LONGEST_RECORD) -> Iterator[str]:
        """Lines with their ends."""
        with self.text() as file:
            number = 0
            while line := file.readline(longest):
                number += 1
                if len(line) == longest and not line.endswith("\n"):
                    raise ScenarioError(
                        f"{self.path}, line {number}: is longer than {longest:,} characters; is it a trace?"
                    )
                yield line

    def records(self) -> Iterator[tuple[int, dict[str, Any], str]]:
        """Lines of JSON with their numbers, blank ones passed over: an object, or an empty one and why it is none."""
        for number, line in enumerate(self.lines(), start=1):
            if line.strip():
                yield number, *_json_record(line)

    @cached_property
    def documents(self) -> list[Any]:
        """JSON values that stand one after another in the file, each on as many lines as it likes."""
        with self.text() as file:
            text = file.read(LONGEST_RECORD)
            if file.read(1):
                raise ScenarioError(f"{self.path}: is longer than {LONGEST_RECORD:,} characters of JSON; split it")
        decoder, found, at = json.JSONDecoder(), [], _skip_blank(text, 0)
        try:
            while at < len(text):
                value, at = decoder.raw_decode(text, at)
                found.append(value)
                at = _skip_blank(text, at)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            raise ScenarioError(
                f"{self.path}, line {line}: is not JSON: {getattr(error, 'msg', error)}; is the file whole?"
            ) from None
        if not found:
            raise ScenarioError(f"{self.path}: is empty")
        return found

    def _raw(self) -> BinaryIO:
        if not self.path.exists():
            raise ScenarioError(f"{self.path}: no such trace file")
        if not self.path.is_file():
            raise ScenarioError(f"{self.path}: is not a regular file; a trace is read from one")
        return self.path.open("rb")

    @contextmanager
    def _complaints(self) -> Iterator[None]:
        try:
            yield
        except ScenarioError:
            raise
        except UnicodeDecodeError as error:
            raise ScenarioError(
                f"{self.path}: cannot be read as a trace: byte {error.object[error.start]:#04x} is not {error.encoding}"
                " text; save it as UTF-8"
            ) from None
        except (OSError, EOFError, csv.Error, zlib.error, ValueError) as error:
            raise ScenarioError(f"{self.path}: cannot be read as a trace: {error}") from error


def _json_record(line: str) -> tuple[dict[str, Any], str]:
    """The object of a line, or an empty one and why there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"is not JSON: {getattr(error, 'msg', error)}"
    return (record, "") if isinstance(record, dict) else ({}, "is not a JSON object")


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


@contextmanager
def _unpacked(raw: BinaryIO, path: Path) -> Iterator["io.BufferedReader[_Bounded]"]:
    magic = raw.read(4)
    raw.seek(0)
    if magic == PARQUET:
        raise ScenarioError(f"{path}: is a parquet file, not text; its format is parquet")
    inner: Any = raw
    if magic.startswith(GZIP):
        inner = gzip.GzipFile(fileobj=raw)
    elif magic == ZSTD:
        import pyarrow as pa

        inner = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    with io.BufferedReader(_Bounded(inner, path)) as data:
        yield data


class _Bounded(io.RawIOBase):
    """Unpacked bytes, up to a bound: a few hundred kilobytes of gzip may hold terabytes."""

    def __init__(self, inner: Any, path: Path) -> None:
        self._inner = inner
        self._path = path
        self._taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        self._taken += len(data)
        if self._taken > MOST_BYTES:
            raise ScenarioError(
                f"{self._path}: is more than {MOST_BYTES >> 30} GiB when unpacked; split it, or take less (limit)"
            )
        buffer[: len(data)] = data
        return len(data)
