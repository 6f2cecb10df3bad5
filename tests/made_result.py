"""Records made by hand: a toy server that keeps every token time, so that tests can compare with the plain lists."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scenario_text import scenario

from simserve.spec.result import COMPLETED, GAP_COLUMNS, REQUEST_COLUMNS, STATUSES, STEP_COLUMNS, Result
from simserve.spec.ticks import TICKS_PER_SECOND

SECOND = TICKS_PER_SECOND
MILLISECOND = SECOND // 1000


@dataclass
class Toy:
    """A server of `seats` on each replica: all of a prompt in one step, then a token a step, in whole ticks.

    A step lasts `base + per_sequence * batch + per_token * context`. `stalls[row]` names tokens after which that
    request gives up its seat for some steps, as a preemption would have it.
    """

    arrival: list[int]
    input_len: list[int]
    output_len: list[int]
    seats: int = 4
    replicas: int = 1
    base: int = 5 * MILLISECOND
    per_sequence: int = MILLISECOND // 10
    per_token: int = 100_003
    stalls: dict[int, dict[int, int]] = field(default_factory=dict)
    delivery: int = 0
    front_end: int = 0
    num_blocks: int = 4096
    tokens: list[list[int]] = field(default_factory=list)

    def run(self, **changes: Any) -> Result:
        """Serve all; `changes` go into the `Result`."""
        n = len(self.arrival)
        requests = {name: np.full(n, -1, dtype) for name, dtype in REQUEST_COLUMNS.items()}
        for name in ("engine_arrival", "scheduled", "first_token", "finish"):
            requests[name][:] = np.nan
        requests["request_id"][:] = np.arange(n)
        for name in ("class_index", "cached_len", "num_preemptions", "turn"):
            requests[name][:] = 0
        requests["session"][:] = -1
        requests["replica"][:] = np.arange(n) % self.replicas
        requests["arrival"][:] = np.array(self.arrival) / SECOND
        requests["engine_arrival"][:] = (np.array(self.arrival) + self.front_end) / SECOND
        requests["input_len"][:] = self.input_len
        requests["output_len"][:] = self.output_len
        requests["status"][:] = COMPLETED
        steps: dict[str, list[int]] = {name: [] for name in STEP_COLUMNS}
        gaps: dict[str, list[int]] = {name: [] for name in GAP_COLUMNS}
        self.tokens = [[] for _ in range(n)]
        for replica in range(self.replicas):
            self._serve(replica, requests, steps, gaps)
        made: dict[str, Any] = {
            "scenario": scenario(),
            "requests": requests,
            "steps": {name: _column(name, steps[name]) for name in STEP_COLUMNS},
            "gaps": {name: np.array(gaps[name], GAP_COLUMNS[name]) for name in GAP_COLUMNS},
            "meta": {"num_gpu_blocks": self.num_blocks + 1, "cost_level": "datasheet", "extrapolated_steps": 0},
        }
        return Result(**made | changes)

    def _serve(self, replica: int, requests: Any, steps: Any, gaps: Any) -> None:
        waiting = sorted((r for r in range(len(self.arrival)) if r % self.replicas == replica), key=self._at_engine)
        running: list[int] = []
        away: dict[int, int] = {}
        last_token_step: dict[int, int] = {}
        now = step = 0
        while waiting or running or away:
            came_back = [r for r, until in away.items() if until <= step or not running]
            running += [r for r in came_back if away.pop(r) is not None]
            prefill = 0
            while waiting and len(running) + len(away) < self.seats and self._at_engine(waiting[0]) <= now:
                r = waiting.pop(0)
                running.append(r)
                requests["scheduled"][r] = now / SECOND
                prefill += self.input_len[r]
            if not running:
                now = self._at_engine(waiting[0])
                continue
            context = sum(self.input_len[r] + len(self.tokens[r]) for r in running)
            end = now + self.base + self.per_sequence * len(running) + self.per_token * context
            arrived = sum(self._at_engine(r) <= now for r in waiting)
            self._log(
                steps, replica, step, now, end, prefill, len(running), context, arrived + len(away), len(came_back)
            )
            for r in list(running):
                self.tokens[r].append(end + self.delivery)
                if len(self.tokens[r]) == 1:
                    requests["first_token"][r] = (end + self.delivery) / SECOND
                    requests["first_step"][r] = step
                elif step - last_token_step[r] > 1:
                    for name, value in zip(GAP_COLUMNS, (r, last_token_step[r], step), strict=True):
                        gaps[name].append(value)
                last_token_step[r] = step
                if len(self.tokens[r]) == self.output_len[r]:
                    running.remove(r)
                    requests["last_step"][r] = step
                    requests["finish"][r] = (end + self.delivery) / SECOND
                elif pause := self.stalls.get(r, {}).get(len(self.tokens[r])):
                    running.remove(r)
                    away[r] = step + 1 + pause
                    requests["num_preemptions"][r] += 1
            now, step = end, step + 1

    def _at_engine(self, row: int) -> int:
        return self.arrival[row] + self.front_end

    def _log(self, steps: Any, replica: int, step: int, start: int, end: int, prefill: int, decodes: int,
             context: int, waiting: int, preemptions: int) -> None:  # fmt: skip
        """One row a step, or one more step of the last row where batch and growth of the gap are the same."""
        if (
            prefill == 0
            and preemptions == 0
            and steps["step"]
            and self._extend(steps, replica, start, end, decodes, waiting)
        ):
            return
        row = dict.fromkeys(STEP_COLUMNS, 0) | {
            "replica": replica, "step": step, "steps": 1, "start": start, "end": end, "prefill_tokens": prefill,
            "decodes": decodes, "context_tokens": context, "running": decodes, "waiting": waiting,
            "free_blocks": max(self.num_blocks - context // 16, 0), "preemptions": preemptions,
            "gpu_time": end - start, "cpu_time": (end - start) // 10, "graph": decodes, "first_token_time": end,
        }  # fmt: skip
        for name in STEP_COLUMNS:
            steps[name].append(row[name])

    def _extend(self, steps: Any, replica: int, start: int, end: int, decodes: int, waiting: int) -> bool:
        count, gap, growth = steps["steps"][-1], steps["gap"][-1], steps["gap_growth"][-1]
        same = steps["replica"][-1] == replica and steps["end"][-1] == start
        if (
            not same
            or steps["decodes"][-1] != decodes
            or steps["waiting"][-1] != waiting
            or steps["prefill_tokens"][-1]
        ):
            return False
        if count == 2:
            steps["gap_growth"][-1] = growth = end - start - gap
        if count == 1:
            steps["gap"][-1] = gap = end - start
        if end - start != gap + (count - 1) * growth:
            return False
        steps["steps"][-1] += 1
        steps["end"][-1] = end
        steps["gpu_time"][-1] += end - start
        steps["cpu_time"][-1] += (end - start) // 10
        return True

    def gaps(self, rows: list[int] | None = None) -> list[int]:
        """All gaps between successive tokens in ticks, request after request: the list nobody else makes."""
        chosen = range(len(self.tokens)) if rows is None else rows
        return [b - a for r in chosen for a, b in zip(self.tokens[r], self.tokens[r][1:], strict=False)]


def _column(name: str, values: list[int]) -> Any:
    in_seconds = STEP_COLUMNS[name] == "float64"
    return np.array(values) / SECOND if in_seconds else np.array(values, STEP_COLUMNS[name])


def poisson(n: int, rate: float, seed: int = 0, **fields: Any) -> Toy:
    """A toy under Poisson arrivals with lengths of a few hundred tokens in and tens out."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(SECOND / rate, n)).astype(np.int64)
    return Toy(arrival.tolist(), rng.integers(50, 400, n).tolist(), rng.integers(1, 60, n).tolist(), **fields)


def with_status(result: Result, row: int, status: str) -> None:
    """Say that this request ended otherwise."""
    result.requests["status"][row] = STATUSES.index(status)
