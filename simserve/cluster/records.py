"""From the logs of the replicas to the columns of a result."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.engine.replica import Replica
from simserve.engine.request import DECODING, Request
from simserve.engine.step_log import FINISH_FIELDS, GAP_FIELDS, STEP_FIELDS
from simserve.spec.result import COMPLETED, REJECTED, UNFINISHED
from simserve.spec.ticks import to_seconds
from simserve.workload.columns import IntArray, Workload

Columns = dict[str, NDArray[Any]]

_SECONDS: Final = ("start", "end", "gpu_time", "cpu_time")
"""Step columns that a result gives in seconds; those of token times stay in ticks, which keeps gaps exact."""


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
    return steps


def gap_columns(replicas: Sequence[Replica]) -> Columns:
    """Gaps between tokens of one request that are longer than a step."""
    gaps = [_columns(replica.log.gaps, GAP_FIELDS) for replica in replicas]
    return {name: np.concatenate([columns[name] for columns in gaps]) for name in GAP_FIELDS}


class Sent(NamedTuple):
    """What the clients did, in ticks: when each request was sent (-1: never), how long it took to reach the engine, and
    how long tokens take back.
    """

    at: IntArray
    delays: IntArray
    delivery: int


def request_columns(
    workload: Workload, sent: Sent, replicas: Sequence[Replica], rejected: Sequence[int], max_model_len: int
) -> Columns:
    """One row per request of the workload."""
    columns = _blank(len(workload))
    columns["status"][np.asarray(rejected, dtype=np.int64)] = REJECTED
    whole_answer = np.minimum(workload.output_len, max_model_len - workload.input_len)
    for index, replica in enumerate(replicas):
        times = TokenTimes(replica.log.step_columns())
        done = _columns(replica.log.finishes, FINISH_FIELDS)
        done["output_len"] = whole_answer[done["request_id"]]
        _fill(columns, index, done, times, sent.delivery)
        columns["status"][done["request_id"]] = COMPLETED
        columns["finish"][done["request_id"]] = to_seconds(times.at(done["last_step"]) + sent.delivery)
        _fill(columns, index, _unfinished(replica), times, sent.delivery)
    was_sent = sent.at >= 0
    return columns | {
        "class_index": workload.class_index,
        "session": workload.session,
        "turn": workload.turn,
        "arrival": np.where(was_sent, to_seconds(sent.at), np.nan),
        "engine_arrival": np.where(was_sent, to_seconds(sent.at + sent.delays), np.nan),
        "input_len": workload.input_len,
    }


def _blank(size: int) -> Columns:
    """Requests that nothing has happened to."""
    columns: Columns = {"request_id": np.arange(size), "status": np.full(size, UNFINISHED, dtype=np.int8)}
    columns |= {name: np.full(size, np.nan) for name in ("scheduled", "first_token", "finish")}
    columns |= {name: np.zeros(size, dtype=np.int64) for name in ("output_len", "cached_len", "num_preemptions")}
    return columns | {name: np.full(size, -1, dtype=np.int64) for name in ("replica", "first_step", "last_step")}


def _fill(columns: Columns, replica: int, log: dict[str, IntArray], times: TokenTimes, delivery: int) -> None:
    """Enter what one replica knows of some requests."""
    rows = log["request_id"]
    columns["replica"][rows] = replica
    for name in ("first_step", "last_step", "cached_len", "num_preemptions", "output_len"):
        columns[name][rows] = log[name]
    started = log["scheduled"] >= 0
    columns["scheduled"][rows[started]] = to_seconds(times.start(log["scheduled"][started]))
    spoke = log["first_step"] >= 0
    columns["first_token"][rows[spoke]] = to_seconds(times.at(log["first_step"][spoke]) + delivery)


def _unfinished(replica: Replica) -> dict[str, IntArray]:
    """The requests that a replica still has, as far as they came."""
    scheduler = replica.scheduler
    requests = [*scheduler.running, *scheduler.waiting]
    rows = [
        (
            request.id,
            request.scheduled,
            request.first_step,
            scheduler.num_steps - 1 if request.state is DECODING else request.token_step,
            request.num_cached_tokens,
            request.num_preemptions,
            _num_output_tokens(request, scheduler.decoding.clock),
        )
        for request in requests
    ]
    fields = (*FINISH_FIELDS, "output_len")
    return dict(zip(fields, np.array(rows, dtype=np.int64).reshape(-1, len(fields)).T, strict=True))


def _num_output_tokens(request: Request, clock: int) -> int:
    if request.state is DECODING:
        return clock - request.base - request.num_prompt_tokens + 1
    return request.num_tokens - request.num_prompt_tokens


def _columns(values: Any, fields: Sequence[str]) -> dict[str, IntArray]:
    table = np.frombuffer(values, dtype=np.int64) if len(values) else np.empty(0, dtype=np.int64)
    return dict(zip(fields, table.reshape(-1, len(fields)).T, strict=True))
