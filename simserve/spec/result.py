"""What a run leaves behind: flat columns of requests and steps, and a few facts.

A `Result` is the only thing that passes from the simulation to the reports. Everything a person reads (summary, table,
plots, pages) is a pure function of it. Times are seconds (float64, nan where the thing did not happen), counts are
tokens, requests or blocks (integers).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray

if TYPE_CHECKING:
    from simserve.spec.scenario import Scenario

STATUSES: Final = ("completed", "rejected", "timed_out", "cancelled", "unfinished")
"""What can become of a request; `requests["status"]` holds indices into this tuple."""

COMPLETED: Final = STATUSES.index("completed")
REJECTED: Final = STATUSES.index("rejected")
TIMED_OUT: Final = STATUSES.index("timed_out")
CANCELLED: Final = STATUSES.index("cancelled")
UNFINISHED: Final = STATUSES.index("unfinished")

REQUEST_COLUMNS: Final[Mapping[str, str]] = {
    "request_id": "int64",
    "class_index": "int64",
    "session": "int64",
    "turn": "int64",
    "replica": "int64",
    "arrival": "float64",
    "engine_arrival": "float64",
    "scheduled": "float64",
    "first_token": "float64",
    "finish": "float64",
    "input_len": "int64",
    "output_len": "int64",
    "wanted_output_len": "int64",
    "cached_len": "int64",
    "num_preemptions": "int64",
    "status": "int8",
    "first_step": "int64",
    "last_step": "int64",
}
"""One row per request of the workload, in the order of `request_id`. `output_len` counts the tokens that were
generated, `wanted_output_len` those that the workload asked for. `arrival`, `first_token` and `finish` are the client's
times, `engine_arrival` and `scheduled` the engine's. `replica`, `first_step` and `last_step` (the replica's numbers of
the steps that gave the first and the last token) are -1 where there is none. A replayed trace may add
`client_input_len` (int64): the prompt tokens as its client counted them, -1 in a row without that count."""

STEP_COLUMNS: Final[Mapping[str, str]] = {
    "replica": "int64",
    "step": "int64",
    "steps": "int64",
    "start": "float64",
    "end": "float64",
    "prefill_tokens": "int64",
    "decodes": "int64",
    "context_tokens": "int64",
    "running": "int64",
    "waiting": "int64",
    "free_blocks": "int64",
    "preemptions": "int64",
    "gpu_time": "float64",
    "cpu_time": "float64",
    "graph": "int64",
    "first_token_time": "float64",
    "gap": "float64",
    "gap_growth": "float64",
}
"""One row per run of `steps` equal steps, `step` being the number of the first; rows of a replica follow each other
without a hole. `gpu_time` and `cpu_time` are totals of the row. The engine knows the tokens of the i-th step of the
row at `first_token_time + i * gap + i * (i - 1) / 2 * gap_growth`; these three may also be whole ticks
(`simserve.spec.ticks`, int64), which keeps gaps between tokens exact in runs of any length (seconds do for 900 s).
`graph` is the padded size of the CUDA graph, 0 where there is none. Under speculative decoding there are two more
(int32): `draft_tokens` that the step verified beside the last tokens of its `decodes`, and the `output_tokens` that it
gave."""

ATTEMPT_COLUMNS: Final[Mapping[str, str]] = {
    "request": "int64",
    "attempt": "int64",
    "replica": "int64",
    "arrival": "float64",
    "engine_arrival": "float64",
    "scheduled": "float64",
    "first_token": "float64",
    "end": "float64",
    "output_len": "int64",
    "cached_len": "int64",
    "num_preemptions": "int64",
    "status": "int8",
    "code": "int64",
}
"""One row per attempt at a request, where clients may give up and send again; `request` is its row, `attempt` counts
from 0, those of a request stand one after the other. `arrival` is when it was sent, `end` when its client had the
answer, was refused (`code`: the HTTP status, else 0) or gave up. In its row a request is what its last attempt was, but
its `arrival` is that of the first: its `ttft` and `e2el` are what its user waited."""

GAP_COLUMNS: Final[Mapping[str, str]] = {"request": "int64", "step_before": "int64", "step_after": "int64"}
"""Gaps between two successive tokens of one request (a row number) that are longer than one step. A fleet in pools adds
`replica_before`, the replica that `step_before` is a step of; `step_after` is one of the request's `replica`."""


@dataclass(frozen=True, slots=True)
class Result:
    """Records of one run.

    `memory` is the memory ledger of a replica's GPU in bytes, beside `num_gpu_blocks` and its source. `meta` holds
    what the run knows of itself: version, seed, profile hash, cost level, counters of the engine, and
    `step_time_breakdown` (operator group -> seconds).
    """

    scenario: "Scenario"
    requests: dict[str, NDArray[Any]]
    steps: dict[str, NDArray[Any]]
    gaps: dict[str, NDArray[Any]]
    class_names: tuple[str, ...] = ("default",)
    memory: Mapping[str, float | int | str] = field(default_factory=dict)
    meta: Mapping[str, object] = field(default_factory=dict)
    attempts: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Empty where every request is sent once and waits for ever."""
