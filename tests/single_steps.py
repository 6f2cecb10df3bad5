"""The step log of a run spelled out step by step, so that runs of equal steps can be compared with stepping."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.spec.result import Result
from simserve.spec.ticks import TICKS_PER_SECOND

Column = NDArray[np.int64]
Columns = dict[str, Column]


def ticks(seconds: NDArray[Any]) -> Column:
    """The whole ticks that a column of seconds stands for; -1 where a thing did not happen."""
    whole: Column = np.nan_to_num(np.rint(seconds * TICKS_PER_SECOND), nan=-1).astype(np.int64)
    return whole


def single_steps(result: Result) -> Columns:
    """One row per step: its number, its batch and when its tokens are known (ticks)."""
    steps = result.steps
    row = np.repeat(np.arange(len(steps["steps"])), steps["steps"])
    index = np.arange(len(row)) - first_steps(result)[row]
    growth = index * (index - 1) // 2 * steps["gap_growth"][row]
    expanded = {name: steps[name][row] for name in ("replica", "prefill_tokens", "decodes", "running", "graph")}
    return expanded | {
        "step": steps["step"][row] + index,
        "tokens_known": steps["first_token_time"][row] + index * steps["gap"][row] + growth,
        "context_tokens": steps["context_tokens"][row] + index * expanded["decodes"],
        "preemptions": np.where(index == 0, steps["preemptions"][row], 0),
    }


def first_steps(result: Result) -> Column:
    """Index among all single steps of the first step of each row."""
    return last_steps(result) + 1 - result.steps["steps"]


def last_steps(result: Result) -> Column:
    """Index among all single steps of the last step of each row."""
    last: Column = np.cumsum(result.steps["steps"]) - 1
    return last
