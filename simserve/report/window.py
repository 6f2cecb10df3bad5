"""Which requests count, from when to when, and the counts over that window."""

from dataclasses import dataclass

import numpy as np

from simserve.report.attempts import when_gone
from simserve.report.metrics import Columns
from simserve.report.tokens import BoolArray, as_ticks, first_replica, output_tokens, token_times
from simserve.spec.errors import ScenarioError
from simserve.spec.result import STATUSES, UNFINISHED, Result
from simserve.spec.ticks import TICKS_PER_SECOND, to_ticks


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a run: requests that came at `start` or later, until the last of them was answered."""

    start: float
    """Arrival of the first measured request, seconds."""
    end: float
    """When the last measured request was answered or given up; the end of the run where some were not."""
    measured: BoolArray
    """Requests that count."""
    excluded: int
    """Requests that came during warm-up and do not count."""

    @property
    def duration(self) -> float:
        """Length in seconds; what throughputs are divided by."""
        return self.end - self.start

    @classmethod
    def of(cls, result: Result) -> "Window":
        """The window of a run, whose first `run.warmup` seconds do not count."""
        requests, warmup = result.requests, result.scenario.run.warmup
        arrived = int(np.sum(~np.isnan(requests["arrival"])))
        measured: BoolArray = requests["arrival"] >= warmup  # what never came is nan, and not measured
        if not measured.any():
            if arrived and warmup:
                last = float(np.nanmax(requests["arrival"]))
                raise ScenarioError(
                    f"run.warmup: {warmup:g} s leaves no request that counts: the last of {arrived} came at "
                    f"{last:.4g} s; set it lower, or send requests for longer"
                )
            return cls(warmup, warmup, measured, arrived)
        start = float(requests["arrival"][measured].min())
        gone = when_gone(requests, result.attempts)
        end = max(start, float(np.nanmax(gone, initial=start, where=measured)))
        if np.any(measured & (requests["status"] == UNFINISHED)):
            horizon = result.scenario.run.max_time
            stopped = float(result.steps["end"].max(initial=start))
            end = max(end, stopped if horizon is None else min(stopped, horizon))
        return cls(start, end, measured, arrived - int(measured.sum()))


def status_counts(requests: Columns, measured: BoolArray) -> dict[str, int]:
    """How many of the measured requests ended in which way; they add up to what arrived."""
    counts = np.bincount(requests["status"][measured], minlength=len(STATUSES)).tolist()
    assert len(counts) == len(STATUSES), "a request has a status that does not exist"
    assert sum(counts) == measured.sum(), "requests were lost"
    return dict(zip(STATUSES, counts, strict=True))


def peak_output_rate(result: Result, chosen: BoolArray, start: float) -> float:
    """Most tokens that came in one second, counted in seconds from `start` as `vllm bench serve` does; where several
    tokens of a request come at once, it counts one, and we all.
    """
    rows = np.flatnonzero(chosen & (result.requests["first_step"] >= 0))
    if rows.size == 0:
        return 0.0
    shift = _delivery(result, int(rows[0])) - to_ticks(start)
    seconds = int((np.nanmax(result.requests["finish"][rows]) - start) // 1) + 2
    tokens = np.zeros(seconds, np.int64)
    for time, count in output_tokens(result, chosen):
        second = (time + shift) // TICKS_PER_SECOND
        inside = (second >= 0) & (second < seconds)
        found = np.bincount(second[inside], weights=count[inside])
        tokens[: found.size] += found.astype(np.int64)
    return float(tokens.max())


def _delivery(result: Result, row: int) -> int:
    """Ticks from a token at the engine to the same token at the client, which is the same for all."""
    step = np.full(result.requests["first_step"].size, -1)
    step[row] = result.requests["first_step"][row]
    at_client = as_ticks(result.requests["first_token"][row : row + 1])[0]
    return int(at_client - token_times(result, step, first_replica(result))[row])


def peak_concurrency(requests: Columns, chosen: BoolArray, start: float) -> int:
    """Most requests that were under way in one second, counted in seconds from `start` as `vllm bench serve` does."""
    if not chosen.any():
        return 0
    began = (requests["arrival"][chosen] - start).astype(np.int64)
    ended = (requests["finish"][chosen] - start).astype(np.int64)
    seconds = int(ended.max()) + 2
    change = np.bincount(began, minlength=seconds) - np.bincount(ended + 1, minlength=seconds)
    return int(np.cumsum(change).max())


def hit_rate(requests: Columns, measured: BoolArray) -> float | None:
    """Share of the prompt tokens of admitted requests that the prefix cache held, each request counted once."""
    admitted = measured & ~np.isnan(requests["scheduled"])
    tokens = int(requests["input_len"][admitted].sum())
    return int(requests["cached_len"][admitted].sum()) / tokens if tokens else None
