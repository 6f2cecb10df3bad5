"""What a replica writes down: one row of integers per step, or per run of equal steps, and one per finished request.

Flat arrays, since a run of a million requests has millions of rows; `simserve.simulation` turns them into columns.
Times of requests are not written: their step numbers are, and steps have times.
"""

from array import array
from typing import Final

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

_FIRST_TOKEN_TIME = STEP_FIELDS.index("first_token_time") - len(STEP_FIELDS)


class StepLog:
    """The rows of one replica; a row is added by `fromlist` of its values, in the order of the fields."""

    __slots__ = ("finishes", "gaps", "steps")

    def __init__(self) -> None:
        self.steps = array("q")
        self.finishes = array("q")
        self.gaps = array("q")

    def tokens_known(self, at: int) -> None:
        """The tokens of the last step written are known at `at`: asynchronous scheduling tells one step later."""
        self.steps[_FIRST_TOKEN_TIME] = at
