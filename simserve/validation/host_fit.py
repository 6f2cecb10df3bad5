"""The front end's time per request, estimated from measured runs: one number per engine version and GPU family.

Under a light load a mean TTFT is the front end's time, a wait for the step that runs, and the prompt's steps. What is
missing there in all rows of a version and family alike is the front end. The estimate is the shift that makes the sum
of relative errors least (a weighted median, which no single row can move far), with a row of the base's value beside
the measured ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simserve.validation.engine_versions import family, stack_of
from simserve.validation.errors import running_at_once
from simserve.validation.measured import MeasuredRun
from simserve.validation.prediction import Prediction

LIGHT = 16
"""Users of a closed loop up to which its mean TTFT is not dominated by the first burst."""
LIGHT_OPEN = 60
"""The same for open arrivals of prompts that are cached."""
SHORT = 2000
"""Prompt tokens up to which the front end is a fair part of a TTFT, which the prompt's own steps are else."""
DEFAULT = 1e-3
"""Seconds that a profile has where nobody measured."""
METRIC = "ttft_mean_ms"

Constant = tuple[str, str]
"""Stack and GPU family."""


class FrontEndEstimate(NamedTuple):
    """Seconds per request, and the number of rows they come from."""

    seconds: float
    rows: int


def constant_of(run: MeasuredRun) -> Constant:
    """The version and family whose front end a row has."""
    gpu = run.text("gpu").lower()
    return stack_of(run.text("engine_version"), run.text("source"), gpu).name, family(gpu)


def group_of(run: MeasuredRun) -> tuple[str, str, str]:
    """GPU, model and tensor parallelism: what is left out together."""
    return run.text("gpu"), run.text("model"), run.text("tp")


def front_ends(predictions: Sequence[Prediction]) -> dict[Constant, FrontEndEstimate]:
    """Estimates from all rows under a light load."""
    found: defaultdict[Constant, list[Prediction]] = defaultdict(list)
    for each in predictions:
        if _tells_of_the_front_end(each):
            found[constant_of(each.run)].append(each)
    return {constant: FrontEndEstimate(_estimate(rows), len(rows)) for constant, rows in found.items()}


def front_ends_without(predictions: Sequence[Prediction]) -> list[Mapping[str, float]]:
    """For each row the host times that the rows of all other (GPU, model, TP) give; none if there are no others."""
    estimates: dict[tuple[str, str, str], dict[Constant, FrontEndEstimate]] = {}
    for each in predictions:
        group = group_of(each.run)
        if group not in estimates:
            estimates[group] = front_ends([other for other in predictions if group_of(other.run) != group])
    return [_times(estimates[group_of(each.run)].get(constant_of(each.run))) for each in predictions]


def _times(estimate: FrontEndEstimate | None) -> Mapping[str, float]:
    return {"front_end_per_request": estimate.seconds if estimate else DEFAULT}


def _tells_of_the_front_end(each: Prediction) -> bool:
    run = each.run
    if METRIC not in run.measured or METRIC not in each.values or each.front_end is None:
        return False
    if (run.number("isl_mean_tok") or 0) > SHORT:
        return False
    if run.text("arrival_process") == "closed-loop":
        return (running_at_once(run) or 0) <= LIGHT
    return run.text("arrival_process") == "constant" and (running_at_once(run) or 0) <= LIGHT_OPEN


def _estimate(rows: Iterable[Prediction]) -> float:
    """Seconds; the predictions hold a front end already, to which the shift is added."""
    values, weights = [DEFAULT], []
    for each in rows:
        measured, predicted = each.run.measured[METRIC], each.values[METRIC]
        values.append(max(0.0, (each.front_end or 0.0) + (measured - predicted) / 1e3))
        weights.append(1 / measured)
    weights.insert(0, float(np.median(weights)))
    order = np.argsort(values)
    reached = np.cumsum(np.array(weights)[order])
    return float(np.array(values)[order][np.searchsorted(reached, reached[-1] / 2)])
