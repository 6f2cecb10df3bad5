"""From the logs of the replicas to the columns of a result."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.engine.ledger import STEP_ELSEWHERE
from simserve.engine.progress import PROGRESS_FIELDS, progress
from simserve.engine.replica import Replica
from simserve.engine.step_log import FINISH_FIELDS, GAP_FIELDS, STEP_FIELDS
from simserve.spec.result import COMPLETED, REJECTED, UNFINISHED
from simserve.spec.ticks import to_seconds
from simserve.workload.columns import IntArray, Workload

Columns = dict[str, NDArray[Any]]

RowOf = Callable[[IntArray], IntArray]
"""From requests of the engine, by their names, to the rows of a table."""

_SECONDS: Final = ("start", "end", "gpu_time", "cpu_time")
"""Step columns that a result gives in seconds; those of token times stay in ticks, which keeps gaps exact."""


def same(request_ids: IntArray) -> IntArray:
    """The rows of requests that bear the numbers of their rows."""
    return request_ids


class TokenTimes:
    """When the tokens of each step of one replica are known, in ticks."""

    def __init__(self, rows: Columns) -> None:
        self._rows = rows
        self.first_step: IntArray = np.cumsum(rows["steps"], dtype=np.int64) - rows["steps"]

    def at(self, step: IntArray) -> IntArray:
        """Ticks of steps by their numbers, any shape."""
        row = np.searchsorted(self.first_step, step, side="right") - 1
        index = step - self.first_step[row]
        num_growths: IntArray = index * (index - 1) // 2
        rows = self._rows
        times: IntArray = (
            rows["first_token_time"][row] + index * rows["gap"][row] + num_growths * rows["gap_growth"][row]
        )
        return times

    def start(self, step: IntArray) -> IntArray:
        """Ticks at which steps that admitted requests, rows of their own, were decided."""
        start: IntArray = self._rows["start"][np.searchsorted(self.first_step, step, side="right") - 1]
        return start


def step_columns(replicas: Sequence[Replica]) -> Columns:
    """The step logs of all replicas, one after the other, as the columns of a result; the logs let go of them."""
    logs = [replica.log.step_columns() for replica in replicas]
    for replica in replicas:
        replica.log.forget()
    counts = [len(log["steps"]) for log in logs]
    steps: Columns = {
        "replica": np.repeat(np.arange(len(logs), dtype=np.int32), counts),
        "step": np.concatenate([TokenTimes(log).first_step for log in logs]),
    }
    for name in STEP_FIELDS:
        parts = [log.pop(name) for log in logs]
        column = parts[0] if len(parts) == 1 else np.concatenate(parts)
        steps[name] = to_seconds(column) if name in _SECONDS else column
    kept = [replica.scheduler.step_columns() for replica in replicas]
    return steps | {
        name: np.concatenate([np.array(each[name], dtype=np.int32) for each in kept if name in each])
        for name in dict.fromkeys(name for each in kept for name in each)
    }


def gap_columns(
    replicas: Sequence[Replica],
    prefill_replica: IntArray | None = None,
    row_of: RowOf = same,
) -> Columns:
    """Gaps between tokens of one request that are longer than a step. `prefill_replica` gives the replica of each
    request's first token, where not all of its tokens come from one: then `replica_before` is that of `step_before`.
    """
    gaps = [_columns(replica.log.gaps, GAP_FIELDS) for replica in replicas]
    columns: Columns = {name: np.concatenate([each[name] for each in gaps]) for name in GAP_FIELDS}
    if prefill_replica is not None:
        logged_by = np.repeat(np.arange(len(gaps)), [len(each["request"]) for each in gaps])
        before = columns["step_before"]
        elsewhere = before < 0
        columns["step_before"] = np.where(elsewhere, STEP_ELSEWHERE - before, before)
        columns["replica_before"] = np.where(elsewhere, prefill_replica[row_of(columns["request"])], logged_by)
    return columns


class Sent(NamedTuple):
    """What the clients did, in ticks: when each request was sent (-1: never), how long it took to reach the engine (-1:
    it did not), and how long tokens take back.
    """

    at: IntArray
    delays: IntArray
    delivery: int


class Tables(NamedTuple):
    """What a run knows of its requests: a row each, the gaps between their tokens, and a row for each attempt, if
    clients make several.
    """

    requests: Columns
    gaps: Columns
    attempts: Columns


def request_columns(
    workload: Workload,
    sent: Sent,
    replicas: Sequence[Replica],
    rejected: Sequence[int],
    max_model_len: int,
    *,
    first: Collection[int] = (),
    row_of: RowOf = same,
) -> Columns:
    """One row per request of the workload; `row_of` tells which one a request of the engine has. The replicas of the
    ids `first`, if any, give first tokens only and are named in `prefill_replica`.
    """
    columns = _blank(len(workload))
    columns["status"][row_of(np.asarray(rejected, dtype=np.int64))] = REJECTED
    whole_answer = np.minimum(workload.output_len, max_model_len - workload.input_len)
    for id in first:
        _enter(columns, id, replicas[id], row_of, whole_answer, sent.delivery, first_only=True)
    prefill_replica = columns["replica"].copy()
    for id, replica in enumerate(replicas):
        if id not in first:
            _enter(columns, id, replica, row_of, whole_answer, sent.delivery)
    if first:
        columns["prefill_replica"] = np.where(prefill_replica >= 0, prefill_replica, columns["replica"])
    was_sent = sent.at >= 0
    return columns | {
        "class_index": workload.class_index,
        "session": workload.session,
        "turn": workload.turn,
        "arrival": np.where(was_sent, to_seconds(sent.at), np.nan),
        "engine_arrival": np.where(was_sent & (sent.delays >= 0), to_seconds(sent.at + sent.delays), np.nan),
        "input_len": workload.input_len,
        "wanted_output_len": workload.output_len,
    }


def _blank(size: int) -> Columns:
    """Requests that nothing has happened to."""
    columns: Columns = {"request_id": np.arange(size), "status": np.full(size, UNFINISHED, dtype=np.int8)}
    columns |= {name: np.full(size, np.nan) for name in ("scheduled", "first_token", "finish")}
    columns |= {name: np.zeros(size, dtype=np.int64) for name in ("output_len", "cached_len", "num_preemptions")}
    return columns | {name: np.full(size, -1, dtype=np.int64) for name in ("replica", "first_step", "last_step")}


def _enter(  # noqa: PLR0917
    columns: Columns,
    id: int,
    replica: Replica,
    row_of: RowOf,
    whole_answer: IntArray,
    delivery: int,
    *,
    first_only: bool = False,
) -> None:
    """Enter what one replica knows; with `first_only` all but answers of one token go on elsewhere."""
    times = TokenTimes(replica.log.step_columns())
    done, aborted = _columns(replica.log.finishes, FINISH_FIELDS), _columns(replica.log.aborts, PROGRESS_FIELDS)
    left = _unfinished(replica)
    for log in (done, aborted, left):
        log["request_id"] = row_of(log["request_id"])
    done["output_len"] = whole_answer[done["request_id"]]
    ended = done["request_id"]
    if first_only:
        ended, done["output_len"] = ended[done["output_len"] == 1], np.ones_like(ended)
    _fill(columns, id, done, times, delivery)
    columns["status"][ended] = COMPLETED
    columns["finish"][ended] = to_seconds(times.at(columns["last_step"][ended]) + delivery)
    _fill(columns, id, aborted, times, delivery)
    _fill(columns, id, left, times, delivery)


def _fill(columns: Columns, replica: int, log: dict[str, IntArray], times: TokenTimes, delivery: int) -> None:
    """Enter what one replica knows of some requests."""
    goes_on = columns["first_step"][log["request_id"]] >= 0
    if goes_on.any():
        _go_on(columns, replica, {name: values[goes_on] for name, values in log.items()})
        log = {name: values[~goes_on] for name, values in log.items()}
    rows = log["request_id"]
    columns["replica"][rows] = replica
    for name in ("first_step", "last_step", "cached_len", "num_preemptions", "output_len"):
        columns[name][rows] = log[name]
    started = log["scheduled"] >= 0
    columns["scheduled"][rows[started]] = to_seconds(times.start(log["scheduled"][started]))
    spoke = log["first_step"] >= 0
    columns["first_token"][rows[spoke]] = to_seconds(times.at(log["first_step"][spoke]) + delivery)


def _go_on(columns: Columns, replica: int, log: dict[str, IntArray]) -> None:
    """Enter what a replica knows of requests that have their first token from another one."""
    columns["num_preemptions"][log["request_id"]] += log["num_preemptions"]
    spoke = log["output_len"] > 1
    rows = log["request_id"][spoke]
    columns["replica"][rows] = replica
    for name in ("last_step", "output_len"):
        columns[name][rows] = log[name][spoke]


def transfer_columns(transfers: Any, size: int, row_of: RowOf = same) -> Columns:
    """When the KV of each of `size` requests was asked for and was there, and its bytes; nan and 0 where none was."""
    log = _columns(transfers, ("request", "start", "end", "bytes"))
    log["request"] = row_of(log["request"])
    columns: Columns = {f"kv_transfer_{name}": np.full(size, np.nan) for name in ("start", "end")}
    for name in ("start", "end"):
        columns[f"kv_transfer_{name}"][log["request"]] = to_seconds(log[name])
    columns["kv_transfer_bytes"] = np.zeros(size, dtype=np.int64)
    columns["kv_transfer_bytes"][log["request"]] = log["bytes"]
    return columns


def _unfinished(replica: Replica) -> dict[str, IntArray]:
    """The requests that a replica still has, as far as they came."""
    scheduler = replica.scheduler
    rows = [progress(request, scheduler, None) for request in scheduler.unfinished()]
    return dict(zip(PROGRESS_FIELDS, np.array(rows, dtype=np.int64).reshape(-1, len(PROGRESS_FIELDS)).T, strict=True))


def _columns(values: Any, fields: Sequence[str]) -> dict[str, IntArray]:
    table = np.frombuffer(values, dtype=np.int64) if len(values) else np.empty(0, dtype=np.int64)
    return dict(zip(fields, table.reshape(-1, len(fields)).T, strict=True))
