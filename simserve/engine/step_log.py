"""What a replica writes down: one row of integers per step, or per run of equal steps, and one per finished request.

Flat arrays, since a run of a million requests has millions of rows; `simserve.simulation` turns them into columns.
Times of requests are not written: their step numbers are, and steps have times.
"""

from array import array
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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

_TIMES: Final = ("start", "end", "first_token_time", "gap", "gap_growth", "gpu_time", "cpu_time")
"""Fields that need 64 bits; the others are counts of one step."""

_FIRST_TOKEN_TIME: Final = STEP_FIELDS.index("first_token_time") - len(STEP_FIELDS)

_BUFFERED: Final = 8192 * len(STEP_FIELDS)
"""Values that wait to be packed."""


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

    def tokens_known(self, at: int) -> None:
        """The tokens of the last step written are known at `at`: asynchronous scheduling tells one step later."""
        self._buffer[_FIRST_TOKEN_TIME] = at

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
