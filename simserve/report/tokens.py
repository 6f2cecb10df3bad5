"""When each token came: the steps of a run turned back into token times and into the gaps between tokens.

A request gets a token (or several at once, where drafts are verified) in every step from its first to its last, except
between the two steps of each of its rows in `gaps`. So its tokens come in unbroken *stretches*, and how many requests
get a token in a step is a count of the stretches that cover it: no list per request is ever made, and a run of any
length passes through in blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.result import Result
from simserve.spec.ticks import TICKS_PER_SECOND

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BLOCK = 1 << 17
"""Steps looked at together; bounds the memory, changes no number."""


def as_ticks(column: NDArray[Any]) -> IntArray:
    """Ticks of a column that holds seconds (floats) or ticks already (integers)."""
    if np.issubdtype(column.dtype, np.integer):
        return column.astype(np.int64, copy=False)
    ticks: IntArray = np.rint(column * TICKS_PER_SECOND).astype(np.int64)
    return ticks


class TokenBlock(NamedTuple):
    """Some successive steps of one replica: per step the time of its tokens, how many requests got one, the time to
    the next step and how many requests had a token in both."""

    time: IntArray
    tokens: IntArray
    gap: IntArray
    weight: IntArray


TIME_COLUMNS = ("first_token_time", "gap", "gap_growth")


@dataclass(frozen=True, slots=True)
class StepClock:
    """Token times of one replica's steps, in ticks."""

    steps: dict[str, NDArray[Any]]
    rows: IntArray | None
    """The replica's rows of `steps`, in step order; None where all are its."""
    first: NDArray[Any]
    """Number of the first step of each of these rows."""

    def at(self, step: IntArray) -> IntArray:
        """When the tokens of each of these steps of the log came."""
        return self._times(step, np.searchsorted(self.first, step, side="right") - 1)

    def between(self, start: int, stop: int) -> IntArray:
        """When the tokens of the steps start, ..., stop - 1 came."""
        return self._times(np.arange(start, stop), _reached(self.first, start, stop) - 1)

    def _times(self, step: IntArray, row: IntArray) -> IntArray:
        since = step - self.first[row]
        if self.rows is not None:
            row = self.rows[row]
        time, gap, growth = (as_ticks(self.steps[name][row]) for name in TIME_COLUMNS)
        times: IntArray = time + since * gap + since * (since - 1) // 2 * growth
        return times


def _reached(numbers: NDArray[Any], start: int, stop: int) -> IntArray:
    """How many of these sorted numbers are at most k, for each k in start, ..., stop - 1."""
    low, high = np.searchsorted(numbers, [start, stop])
    reached: IntArray = low + np.cumsum(np.bincount(numbers[low:high] - start, minlength=stop - start))
    return reached


def step_clocks(steps: dict[str, NDArray[Any]]) -> dict[int, StepClock]:
    """The clock of each replica that ran a step."""
    replica = steps["replica"]
    if replica.size == 0:
        return {}
    if np.all(replica == replica[0]):
        return {int(replica[0]): StepClock(steps, None, steps["step"])}
    order = np.argsort(replica, kind="stable")
    numbers, starts = np.unique(replica[order], return_index=True)
    groups = np.split(order, starts[1:])
    return {
        int(number): StepClock(steps, rows, steps["step"][rows]) for number, rows in zip(numbers, groups, strict=True)
    }


def first_replica(result: Result) -> IntArray:
    """Per request, the replica of its first token; `replica` is that of the last one."""
    replica: IntArray = result.requests.get("prefill_replica", result.requests["replica"])
    return replica


def replica_before(result: Result) -> IntArray:
    """Per gap, the replica that `step_before` is a step of."""
    replica: IntArray = result.gaps.get("replica_before", result.requests["replica"][result.gaps["request"]])
    return replica


def token_times(result: Result, step: IntArray, replica: IntArray) -> IntArray:
    """Per request, the time (ticks) of the tokens of that step of that replica; 0 where the step is -1."""
    times = np.zeros(step.size, np.int64)
    for number, clock in step_clocks(result.steps).items():
        here = (replica == number) & (step >= 0)
        times[here] = clock.at(step[here])
    return times


def exceptional_gaps(result: Result, chosen: BoolArray) -> IntArray:
    """Gaps (ticks) of the chosen requests that span steps without a token: a preemption is one such gap."""
    rows = result.gaps["request"]
    kept = chosen[rows]
    before, after = (result.gaps[name][kept] for name in ("step_before", "step_after"))
    from_, to = replica_before(result)[kept], result.requests["replica"][rows[kept]]
    gaps = np.zeros(before.size, np.int64)
    for number, clock in step_clocks(result.steps).items():
        gaps[to == number] += clock.at(after[to == number])
        gaps[from_ == number] -= clock.at(before[from_ == number])
    return gaps


def token_blocks(result: Result, chosen: BoolArray) -> Iterator[TokenBlock]:
    """Tokens of the chosen requests, block by block and replica by replica; exceptional gaps are not among them."""
    requests, gaps = result.requests, result.gaps
    chosen = chosen & (requests["first_step"] >= 0)
    broken = chosen[gaps["request"]]
    first, last = first_replica(result), requests["replica"]
    before, after = replica_before(result), last[gaps["request"]]
    for number, clock in step_clocks(result.steps).items():
        begun, gone_on = chosen & (first == number), broken & (after == number)
        ended, broken_off = chosen & (last == number), broken & (before == number)
        begins = np.sort(np.concatenate([requests["first_step"][begun], gaps["step_after"][gone_on]]))
        ends = np.sort(np.concatenate([requests["last_step"][ended], gaps["step_before"][broken_off]]))
        if begins.size:
            yield from _blocks(clock, begins, ends)


def output_tokens(result: Result, chosen: BoolArray) -> Iterator[tuple[IntArray, IntArray]]:
    """When output tokens came (ticks), and how many at each of these times, block by block.

    Where steps verify drafts and give a request several tokens, the log knows them by step only: then all count,
    whoever is chosen.
    """
    if "output_tokens" in result.steps:
        yield as_ticks(result.steps["first_token_time"]), result.steps["output_tokens"].astype(np.int64)
        return
    for block in token_blocks(result, chosen):
        some = block.tokens > 0
        yield block.time[some], block.tokens[some]


def _blocks(clock: StepClock, begins: IntArray, ends: IntArray) -> Iterator[TokenBlock]:
    """Blocks of one replica's steps; stretches of tokens begin and end at these steps (both sorted)."""
    last = int(ends[-1])
    for start in range(int(begins[0]), last + 1, BLOCK):
        stop = min(start + BLOCK, last + 1)
        ended = _reached(ends, start - 1, stop)
        begun = _reached(begins, start, stop)
        time = clock.between(start, stop + 1)  # a step past the log has a made-up time, and no token
        yield TokenBlock(time[:-1], begun - ended[:-1], np.diff(time), begun - ended[1:])
