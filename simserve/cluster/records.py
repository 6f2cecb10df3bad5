"""From the logs of the replicas to the columns of a result."""

from collections.abc import Sequence
from typing import Any, Final

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

    def __init__(self, rows: dict[str, IntArray]) -> None:
        self._rows = rows
        self.first_step = np.cumsum(rows["steps"]) - rows["steps"]

    def at(self, step: IntArray) -> IntArray:
        """Ticks of steps by their numbers, any shape."""
        row = np.searchsorted(self.first_step, step, side="right") - 1
        index = step - self.first_step[row]
        num_growths: IntArray = index * (index - 1) // 2
        rows = self._rows
        return rows["first_token_time"][row] + index * rows["gap"][row] + num_growths * rows["gap_growth"][row]

    def start(self, step: IntArray) -> IntArray:
        """Ticks at which steps that admitted requests, rows of their own, were decided."""
        return self._rows["start"][np.searchsorted(self.first_step, step, side="right") - 1]


def step_rows(replica: Replica) -> dict[str, IntArray]:
    """The step log of one replica as columns, in ticks."""
    return _columns(replica.log.steps, STEP_FIELDS)


def step_columns(rows: Sequence[dict[str, IntArray]]) -> Columns:
    """The step logs of all replicas, one after the other, as the columns of a result."""
    counts = [len(columns["steps"]) for columns in rows]
    joined = {name: np.concatenate([columns[name] for columns in rows]) for name in STEP_FIELDS}
    steps: Columns = {
        "replica": np.repeat(np.arange(len(rows)), counts),
        "step": np.concatenate([TokenTimes(columns).first_step for columns in rows]),
    }
    return steps | {name: to_seconds(column) if name in _SECONDS else column for name, column in joined.items()}


def gap_columns(replicas: Sequence[Replica]) -> Columns:
    """Gaps between tokens of one request that are longer than a step."""
    gaps = [_columns(replica.log.gaps, GAP_FIELDS) for replica in replicas]
    return {name: np.concatenate([columns[name] for columns in gaps]) for name in GAP_FIELDS}


def request_columns(
    workload: Workload,
    arrival: IntArray,
    delays: IntArray,
    delivery: int,
    replicas: Sequence[Replica],
    rejected: Sequence[int],
    max_model_len: int,
) -> Columns:
    """One row per request of the workload. `arrival` is at the client, -1 for what was never sent."""
    size = len(workload)
    whole = {name: np.full(size, -1, dtype=np.int64) for name in ("replica", "first_step", "last_step")}
    counts = {name: np.zeros(size, dtype=np.int64) for name in ("output_len", "cached_len", "num_preemptions")}
    times = {name: np.full(size, np.nan) for name in ("scheduled", "first_token", "finish")}
    status = np.full(size, UNFINISHED, dtype=np.int8)
    status[np.asarray(rejected, dtype=np.int64)] = REJECTED
    full_output = np.minimum(workload.output_len, max_model_len - workload.input_len)
    for index, replica in enumerate(replicas):
        token_times = TokenTimes(step_rows(replica))
        done = _columns(replica.log.finishes, FINISH_FIELDS)
        rows = done["request_id"]
        status[rows] = COMPLETED
        counts["output_len"][rows] = full_output[rows]
        times["finish"][rows] = to_seconds(token_times.at(done["last_step"]) + delivery)
        left = _unfinished(replica)
        counts["output_len"][left["request_id"]] = left["output_len"]
        for columns in (done, left):
            rows = columns["request_id"]
            whole["replica"][rows] = index
            for name, target in (*whole.items(), *counts.items()):
                if name in columns and name != "output_len":
                    target[rows] = columns[name]
            for name, step, ticks in (
                ("scheduled", columns["scheduled"], token_times.start),
                ("first_token", columns["first_step"], lambda step: token_times.at(step) + delivery),
            ):
                there = step >= 0
                times[name][rows[there]] = to_seconds(ticks(step[there]))
    sent = arrival >= 0
    return {
        "request_id": np.arange(size),
        "class_index": workload.class_index,
        "session": workload.session,
        "turn": workload.turn,
        "arrival": np.where(sent, to_seconds(arrival), np.nan),
        "engine_arrival": np.where(sent, to_seconds(arrival + delays), np.nan),
        "input_len": workload.input_len,
        "status": status,
        **whole,
        **counts,
        **times,
    }


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
