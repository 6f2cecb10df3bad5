"""What a replica writes down: one row of integers per step, or per run of equal steps, and one per finished request.

Flat arrays, since a run of a million requests has millions of rows; `simserve.simulation` turns them into columns.
Times of requests are not written: their step numbers are, and steps have times.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simserve.engine.ledger import Ledger
    from simserve.engine.plan import StepPlan

STEP_FIELDS: Final = (
    "steps",
    "start",
    "end",
    "first_token_time",
    "gap",
    "gap_growth",
    "prefill_tokens",
    "decodes",
    "context_tokens",
    "running",
    "waiting",
    "free_blocks",
    "preemptions",
    "gpu_time",
    "cpu_time",
    "graph",
)
"""`start` is when the first step of the row was decided, `end` when the GPU finished the last. The tokens of the i-th
step are known at `first_token_time + i * gap + i * (i - 1) / 2 * gap_growth`. `waiting` is as of the first step,
`free_blocks` as of the last; `gpu_time` and `cpu_time` are totals. Times in ticks."""

FINISH_FIELDS: Final = ("request_id", "scheduled", "first_step", "last_step", "cached_len", "num_preemptions")
"""`scheduled`, `first_step`, `last_step`: numbers of the steps that admitted it, gave its first and its last token."""

GAP_FIELDS: Final = ("request", "step_before", "step_after")
"""Steps of two successive tokens of a request with at least one step between them."""

START, END, FIRST_TOKEN_TIME, GPU_TIME, CPU_TIME = map(
    STEP_FIELDS.index, ("start", "end", "first_token_time", "gpu_time", "cpu_time")
)

LATER: Final = -1
"""Stands in the row of a step for what its end will tell."""

_TIMES: Final = ("start", "end", "first_token_time", "gap", "gap_growth", "gpu_time", "cpu_time")
"""Fields that need 64 bits; the others are counts of one step."""

_BUFFERED: Final = 8192 * len(STEP_FIELDS)
"""Values that wait to be packed."""


def step_row(  # noqa: PLR0917 (made for each step)
    plan: StepPlan, ledger: Ledger, num_preempted: int, start: int, end: int, gpu: int, cpu: int, graph: int
) -> list[int]:
    """The row of one step, as it stands when it has been decided; its tokens are known at its `end`, if nothing says
    otherwise.
    """
    return [
        1,
        start,
        end,
        end,
        0,
        0,
        plan.num_prefill_tokens,
        plan.num_decodes,
        plan.context,
        len(ledger.running),
        len(ledger.waiting),
        ledger.pool.num_free,
        num_preempted,
        gpu,
        cpu,
        graph,
    ]


class StepLog:
    """The rows of one replica. `finishes`, `gaps` and `aborts` take rows by `fromlist`, in the order of the fields (of
    `simserve.engine.progress` for aborts).
    """

    __slots__ = ("_buffer", "_packed", "aborts", "finishes", "gaps")

    def __init__(self) -> None:
        self.finishes = array("q")
        self.gaps = array("q")
        self.aborts = array("q")
        self._buffer = array("q")
        self._packed: list[dict[str, NDArray[Any]]] = []

    def add_step(self, row: list[int]) -> None:
        """A step, or a run of equal ones: its values in the order of `STEP_FIELDS`."""
        if len(self._buffer) == _BUFFERED:
            self._pack()
        self._buffer.fromlist(row)

    def add_gaps(self, plan: StepPlan) -> None:
        """The gaps that a step ends."""
        for request, step_before in plan.gaps:
            self.gaps.fromlist([int(request.id), step_before, plan.index])

    def step_columns(self) -> dict[str, NDArray[Any]]:
        """All rows so far, as columns of integers."""
        if self._buffer or not self._packed:
            self._pack()
        blocks = self._packed
        if len(blocks) > 1:  # column by column, so that not all of them are there twice
            self._packed = [{name: np.concatenate([block.pop(name) for block in blocks]) for name in STEP_FIELDS}]
        return self._packed[0]

    def forget(self) -> None:
        """Let go of all rows: they are columns elsewhere now."""
        self._packed = []
        self.finishes, self.gaps, self.aborts = array("q"), array("q"), array("q")

    def _pack(self) -> None:
        rows = np.array(self._buffer, dtype=np.int64).reshape(-1, len(STEP_FIELDS))
        self._packed.append(
            {
                name: np.ascontiguousarray(rows[:, index], dtype=np.int64 if name in _TIMES else np.int32)
                for index, name in enumerate(STEP_FIELDS)
            }
        )
        self._buffer = array("q")
