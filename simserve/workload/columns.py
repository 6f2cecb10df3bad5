"""The traffic of one run as columns, one row per request: what the simulation takes in."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.ticks import TICKS_PER_SECOND
from simserve.workload.prefix_ids import SharedText
from simserve.workload.trace_report import TraceReport
from simserve.workload.traces import CountedBy

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

LAST_SECOND: Final = 900_000.0
"""Latest arrival in seconds, a little before the end of the int64 clock."""


class Arrival(NamedTuple):
    """One row of a workload, as the request that reaches a fleet. All fields but `row` are columns of their names: one
    more column goes to the engine with one more field.
    """

    row: int
    input_len: int
    output_len: int
    max_tokens: int
    priority: int
    prefix_group: int
    prefix_len: int


_AS_ARRIVAL: Callable[[Iterable[int]], Arrival] = partial(tuple.__new__, Arrival)
"""`Arrival._make` without its check and its call, which a million requests would feel."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one run; the row is the request id. Every column is int64, lengths are tokens, times are ticks.

    `arrival` is the time at the client, -1 where the simulation decides it: in a closed loop, where each of `users`
    sends its next request `think` after its last answer, and for a later turn of a chat, which comes `think` after the
    answer of its `parent`. Times that are known rise with the row.

    `max_tokens` (at least `output_len`) is what the scheduler knows. A prompt begins with the first `prefix_len` tokens
    of its `prefix_group` (-1: none), or, where there is a `parent` (a row, -1: none), with the parent's prompt and
    answer, or with what `shared_text` says of its row. The turns of a `session` (-1: none) are consecutive rows, but
    for recorded turns with times of their own.
    """

    arrival: IntArray
    input_len: IntArray
    output_len: IntArray
    max_tokens: IntArray
    priority: IntArray
    class_index: IntArray
    class_names: tuple[str, ...]
    prefix_group: IntArray
    prefix_len: IntArray
    session: IntArray
    turn: IntArray
    parent: IntArray
    think: IntArray
    users: int = 0
    skipped_rows: int = 0
    """Bad rows of a trace that were left out on request."""
    shortened_sessions: int = 0
    """Chats that end before their last turn, at the first that does not fit into `max_model_len`."""
    client_input_len: IntArray | None = None
    """Prompt tokens as the client of a trace counted them, -1 where it is not known; None where no row has them."""
    input_counted_by: CountedBy | None = None
    """Whose count `input_len` is, in a trace; None where lengths are drawn."""
    shared_text: SharedText | None = None
    """How the prompts of a trace begin, in the rows that it says it of; None where it says it of none."""
    trace_report: TraceReport | None = None
    """What became of the trace on its way in."""

    def __len__(self) -> int:
        return len(self.input_len)

    def arrivals(self, rows: IntArray) -> Iterator[Arrival]:
        """Some rows one by one, in this order."""
        columns = [getattr(self, name)[rows].tolist() for name in Arrival._fields[1:]]
        return map(_AS_ARRIVAL, zip(rows.tolist(), *columns, strict=True))

    @property
    def shares_text(self) -> bool:
        """Whether any prompt begins as another one does, or with another one."""
        known = self.shared_text is not None and len(self.shared_text.streams) > 0
        return known or bool(((self.prefix_group >= 0) | (self.text_parent >= 0)).any())

    @property
    def text_parent(self) -> IntArray:
        """Row whose prompt and answer a prompt begins with, -1 for none: the parent, where nothing else is said."""
        return self.parent if self.shared_text is None else np.where(self.shared_text.known, -1, self.parent)


class Rows:
    """Rows of a workload, one at a time and in any order."""

    def __init__(self, workload: Workload) -> None:
        self._columns = memory(*(getattr(workload, name) for name in Arrival._fields[1:]))

    def arrival(self, row: int) -> Arrival:
        """The request of a row."""
        return Arrival(row, *[column[row] for column in self._columns])


def memory(*columns: IntArray) -> list[memoryview]:
    """Columns as memory views, which give single numbers as Python integers, and fast."""
    return [np.ascontiguousarray(column).data for column in columns]


def clock_ticks(seconds: FloatArray) -> IntArray:
    """Ticks of times in seconds, whole nanoseconds; -1 for nan.

    On this grid the seconds of a result or of a saved trace, which hold it exactly, read back as the very same ticks.

    Raises:
        ScenarioError: a time beyond the end of the clock.
    """
    known = np.isfinite(seconds)
    if np.any(seconds[known] > LAST_SECOND):
        raise ScenarioError(
            f"workload: a request would arrive after {np.max(seconds[known]):.4g} s, but the clock ends after "
            f"{LAST_SECOND:g} s (10 days); take fewer requests or a higher rate"
        )
    nanoseconds = np.rint(np.where(known, seconds, 0.0) * 1e9).astype(np.int64)
    return np.where(known, nanoseconds * (TICKS_PER_SECOND // 10**9), -1)
