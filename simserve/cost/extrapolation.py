"""How many steps of a run lie beyond the measured tables, from the step log alone.

A step counts where one of its kernels is larger than any that was measured; smaller ones stay at the edge of the table,
which is a floor. A GEMM wider than all measured ones is a row of narrower ones and does not count.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.cost.forward import Forward
from simserve.cost.gemm_table import RowCurve
from simserve.cost.operators import FusedExperts, Linear


def extrapolated_steps(forward: Forward, steps: Mapping[str, NDArray[Any]]) -> int:
    """Steps beyond the tables in a log with columns prefill_tokens, decodes, context_tokens (of the first step of a
    row) and steps. The history of chunks is not in the log and does not count.
    """
    if forward.device.tables is None:
        return 0
    prefill, decodes, context, repeat = (
        steps[name].astype(np.int64) for name in ("prefill_tokens", "decodes", "context_tokens", "steps")
    )
    curves = list(_curves(forward))
    if any(curve.is_beyond for curve in curves):
        return int(repeat.sum())
    most_rows = min((curve.sizes[-1] for curve in curves), default=np.inf)
    beyond = np.where(prefill + decodes > most_rows, repeat, 0)
    for count in np.unique(decodes[decodes > 0]).tolist():
        limits = [most for time in forward.times if (most := time.measured_context(count)) is not None]
        if limits:
            rows = decodes == count
            inside = (min(limits) - context[rows]) // count + 1
            beyond[rows] = np.maximum(beyond[rows], repeat[rows] - np.clip(inside, 0, repeat[rows]))
    return int(beyond.sum())


def _curves(forward: Forward) -> list[RowCurve]:
    """Measured curves of the operators that have one."""
    operators = [*forward.operators, *forward.shape.head]
    curves = [each.measured(forward.device) for each in operators if isinstance(each, Linear | FusedExperts)]
    return [curve for curve in curves if curve is not None]
