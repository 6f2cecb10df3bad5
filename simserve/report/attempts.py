"""What giving up and sending again cost: attempts, and tokens that were generated for nobody."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.tokens import BoolArray
from simserve.spec.result import COMPLETED, STATUSES, Result

FloatArray = NDArray[np.float64]


def attempt_counts(result: Result, measured: BoolArray) -> dict[str, Any]:
    """Attempts at the measured requests; empty where every request is sent once and waits for ever.

    `wasted_output_tokens` are those of attempts that were given up; a request that is cancelled (a turn of a chat that
    was over before) is never sent, and counts nowhere else.
    """
    attempts = result.attempts
    if not attempts:
        return {}
    mine = measured[attempts["request"]]
    status, in_vain = attempts["status"][mine], mine & (attempts["status"] != COMPLETED)
    codes, counts = np.unique(attempts["code"][mine], return_counts=True)
    return {
        "attempts": {
            "count": int(mine.sum()),
            "per_request": int(mine.sum()) / int(measured.sum()) if measured.any() else None,
            "statuses": dict(zip(STATUSES, np.bincount(status, minlength=len(STATUSES)).tolist(), strict=True)),
            "codes": {str(code): int(count) for code, count in zip(codes, counts, strict=True) if code},
            "wasted_output_tokens": int(attempts["output_len"][in_vain].sum()),
            "cancelled_turns": int((result.requests["status"] == STATUSES.index("cancelled")).sum()),
        }
    }


def when_gone(requests: Mapping[str, NDArray[Any]], attempts: Mapping[str, NDArray[Any]]) -> FloatArray:
    """When each client had his answer or had given up for good, seconds; nan while he waits."""
    gone: FloatArray = requests["finish"].copy()
    if attempts:
        size = len(gone)
        last = np.searchsorted(attempts["request"], np.arange(size), side="right") - 1
        sent = ~np.isnan(requests["arrival"])
        gone[sent] = np.fmax(gone[sent], attempts["end"][last[sent]])
    return gone
