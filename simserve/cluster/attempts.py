"""What became of every attempt at a request, where clients may give up and send again: from the log to columns.

A request has one row in the records, that of its last attempt, but for its arrival, which is that of the first: a
user's time to first token begins when he first asked. The attempts have a table of their own, one row each.
"""

from array import array
from dataclasses import replace
from typing import Any

import numpy as np

from simserve.cluster import records
from simserve.cluster.fleet import Fleet
from simserve.cluster.records import Columns, RowOf, Sent, Tables
from simserve.spec.result import ATTEMPT_COLUMNS, CANCELLED, COMPLETED, UNFINISHED
from simserve.spec.ticks import to_seconds
from simserve.workload.columns import IntArray, Workload

NEVER = -1


class AttemptLog:
    """The attempts in the order in which they were sent, by index; times in ticks, `NEVER` where it did not happen.

    The name of an attempt, which its request bears in the engine, is row + size * number, `number` being 0 for the
    first of its row: it does not depend on the order of events.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.names = array("q")
        self.sent = array("q")
        self.reached = array("q")
        """When it reached the fleet, to be served or refused."""
        self.ended = array("q")
        """When its client knew how it ended."""
        self.statuses = array("b")
        self.codes = array("h")
        """HTTP status of a refusal; 0 for all else."""
        self.outcomes = array("b", [UNFINISHED]) * size
        """What became of each row."""

    def begin(self, name: int, sent: int) -> int:
        """An attempt is sent; returns its index."""
        for column, value in ((self.names, name), (self.sent, sent), (self.reached, NEVER), (self.ended, NEVER)):
            column.append(value)
        self.statuses.append(UNFINISHED)
        self.codes.append(0)
        return len(self.names) - 1

    def end(self, index: int, status: int, at: int) -> None:
        """Its client knows how an attempt ended."""
        self.statuses[index] = status
        self.ended[index] = at

    def cancel(self, row: int) -> None:
        """A request will never be sent."""
        self.outcomes[row] = CANCELLED


def place_of_attempts(log: AttemptLog) -> RowOf:
    """From the names of attempts to their places in a table in which those of a request stand one after the other."""
    names = np.array(log.names, dtype=np.int64)
    order, ranked = np.lexsort((names // log.size, names % log.size)), np.argsort(names)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))

    def place_of(request_ids: IntArray) -> IntArray:
        found: IntArray = place[ranked[np.searchsorted(names, request_ids, sorter=ranked)]]
        return found

    return place_of


def attempt_columns(log: AttemptLog, workload: Workload, sent: Sent, fleet: Fleet, place_of: RowOf) -> Columns:
    """Request columns, but one row per attempt, those of a request one after the other, where `place_of` tells; beside
    them `request`, `attempt` (from 0), `end` (seconds) and `code`.
    """
    names = np.array(log.names, dtype=np.int64)
    rows, numbers = names % log.size, names // log.size
    order = np.lexsort((numbers, rows))
    rows, numbers = rows[order], numbers[order]
    at, reached, ended = (_ticks(column)[order] for column in (log.sent, log.reached, log.ended))
    columns = fleet.request_columns(
        _rows_of(workload, rows), Sent(at, sent.delays[rows], sent.delivery), row_of=place_of
    )
    status = np.array(log.statuses, dtype=np.int8)[order]
    end = np.where(ended == NEVER, np.nan, to_seconds(ended))
    columns["status"] = status
    columns["engine_arrival"] = np.where(reached == NEVER, np.nan, to_seconds(reached))
    columns["finish"] = np.where(status == COMPLETED, columns["finish"], np.nan)
    left_before = (status != COMPLETED) & (columns["first_token"] > end)
    columns["first_token"] = np.where(left_before, np.nan, columns["first_token"])
    return columns | {
        "request": rows,
        "attempt": numbers,
        "end": end,
        "code": np.array(log.codes, dtype=np.int64)[order],
    }


def of_attempts(log: AttemptLog, workload: Workload, columns: Columns, gaps: Columns) -> Tables:
    """Request columns, gaps and the table of attempts, from columns of attempts and from all gaps.

    A request is its last attempt, from the arrival of its first; the gaps between its tokens are those of that attempt.
    """
    first = np.searchsorted(columns["request"], np.arange(log.size), side="left")
    last = np.searchsorted(columns["request"], np.arange(log.size), side="right") - 1
    never = np.full(log.size, NEVER)
    requests = records.request_columns(workload, Sent(never, never, 0), (), (), 0)
    if "prefill_replica" in columns:
        requests |= {"prefill_replica": never.copy()} | records.transfer_columns(array("q"), log.size)
    sent = last >= first
    for name in requests:
        requests[name][sent] = columns[name][last[sent]]
    requests["request_id"] = np.arange(log.size)
    requests["arrival"][sent] = columns["arrival"][first[sent]]
    requests["status"] = np.array(log.outcomes, dtype=np.int8)
    rows, numbers = gaps["request"] % log.size, gaps["request"] // log.size
    chosen = columns["attempt"][last[rows]] == numbers
    gaps = {name: (rows if name == "request" else column)[chosen] for name, column in gaps.items()}
    return Tables(requests, gaps, {name: columns[name] for name in ATTEMPT_COLUMNS})


def _ticks(column: Any) -> IntArray:
    return np.array(column, dtype=np.int64)


def _rows_of(workload: Workload, rows: IntArray) -> Workload:
    """The columns that records need, row by row."""
    names = ("input_len", "output_len", "class_index", "session", "turn")
    return replace(workload, **{name: getattr(workload, name)[rows] for name in names})
