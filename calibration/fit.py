"""Fits step times: several forms by non-negative least squares on relative errors, of which held-out steps decide.

Forms (`shared` features are those of `Coefficients`):

- `linear`: tokens, decodes, context, and pairs of new and old tokens of chunks.
- `linear_chunks`: and what a step with chunks takes, each chunk, and the KV that chunks read.
- `roofline`: as `linear_chunks`, but tokens cost nothing up to the number at which weights are read as fast as used.
- `knots`: as `linear_chunks`, with tokens piecewise linear between fixed counts.

No coefficient is negative: more work never takes less time. A captured graph has a curve of tokens of its own.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.samples import Sample
from simserve.spec.calibrated import Coefficients, FitErrors
from simserve.spec.errors import ScenarioError

FloatArray = NDArray[np.float64]

BOUND = 0.08
"""Largest mean relative error on held-out steps."""
NOISY = 0.05
"""Noise floor beyond which a calibration proves nothing about another hour."""
KNOTS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SHORT = ("per_decode", "per_context_token", "per_chunk_pair")
LONG = (*SHORT, "with_chunks", "per_chunk", "per_chunk_kv_token")


class Step(NamedTuple):
    """A point that was measured: its features, its median seconds on the device, and those of two halves of passes."""

    kind: str
    held_out: bool
    rows: int
    """Tokens, or rows of the graph."""
    graph: bool
    features: dict[str, float]
    seconds: float
    halves: tuple[float, float]


class Fit(NamedTuple):
    """A form with its numbers; `graph_tokens` is empty without graphs."""

    form: str
    tokens: dict[int, float]
    graph_tokens: dict[int, float]
    coefficients: Coefficients

    def predict(self, steps: Sequence[Step]) -> FloatArray:
        """Seconds of steps."""
        each = self.coefficients.model_dump()
        return np.array(
            [
                _along(self.graph_tokens if step.graph else self.tokens, step.rows)
                + sum(each[name] * value for name, value in step.features.items())
                for step in steps
            ]
        )


class Fitted(NamedTuple):
    """The form with the least error on held-out steps, the errors of all, its own by kind, and the noise."""

    fit: Fit
    errors: FitErrors
    candidates: dict[str, FitErrors]
    residuals: dict[str, FitErrors]
    noise_floor: float


def steps_of(samples: Sequence[Sample]) -> list[Step]:
    """Medians over the passes."""
    by_point: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_point[sample.place].append(sample)
    return [_step(sorted(group)) for _, group in sorted(by_point.items())]


def _step(group: list[Sample]) -> Step:
    point, graph = group[0].point, group[0].graph
    times = [sample.device for sample in group]
    lengths = [(new, history) for new, history in point.chunks if new > 1]
    singles = [history + 1 for new, history in point.chunks if new == 1]
    features = {
        "per_decode": float(len(point.decodes) + len(singles)),
        "per_context_token": float(sum(point.decodes) + sum(singles)),
        "with_chunks": float(bool(lengths)),
        "per_chunk": float(len(lengths)),
        "per_chunk_kv_token": float(sum(new + history for new, history in lengths)),
        "per_chunk_pair": float(sum(new * (new + history) for new, history in lengths)),
    }
    halves = statistics.median(times[0::2]), statistics.median(times[1::2] or times)
    seconds = statistics.median(times)
    return Step(point.kind, point.held_out, graph or point.tokens, graph > 0, features, seconds, halves)


def fit_steps(steps: Sequence[Step]) -> Fitted:
    """Fit every form and keep the best."""
    train = [step for step in steps if not step.held_out]
    held_out = [step for step in steps if step.held_out]
    fits = [*_fits(train)]
    candidates = {fit.form: errors_of(fit, held_out) for fit in fits}
    best = min(fits, key=lambda fit: candidates[fit.form].mape)
    kinds = sorted({step.kind for step in held_out})
    residuals = {kind: errors_of(best, [step for step in held_out if step.kind == kind]) for kind in kinds}
    floor = statistics.mean(abs(a - b) / ((a + b) / 2) for a, b in (step.halves for step in steps))
    return Fitted(best, candidates[best.form], candidates, residuals, floor)


def check(fitted: Fitted, bound: float = BOUND) -> None:
    """Raise unless the fit can be used.

    Raises:
        ScenarioError: its error on held-out steps exceeds the bound; the message says what to do.
    """
    error, floor = fitted.errors.mape, fitted.noise_floor
    if error <= bound:
        return
    if floor > bound / 2:
        why = f"the machine is noisy: two halves of the passes differ by {floor:.1%}"
        remedy = "stop what else runs on it and calibrate again into another folder, or take more --passes"
    else:
        why = f"the machine is quiet (two halves of the passes differ by {floor:.1%}), so the forms do not suit it"
        remedy = "look at the residuals of samples.csv by kind, and fit a narrower range with --max-tokens"
    raise ScenarioError(
        f"calibration: held-out steps are {error:.1%} off on average, more than {100 * bound:g}%; {why}; {remedy}"
    )


def errors_of(fit: Fit, steps: Sequence[Step]) -> FitErrors:
    """Relative errors of predictions."""
    measured = np.array([step.seconds for step in steps])
    predicted = fit.predict(steps)
    relative = np.abs(predicted / measured - 1)
    bias = float(predicted.sum() / measured.sum() - 1)
    mape, p95 = float(relative.mean()), float(np.percentile(relative, 95))
    return FitErrors(mape=round(mape, 5), p95=round(p95, 5), bias=round(bias, 5))


def _fits(train: Sequence[Step]) -> list[Fit]:
    most = max(step.rows for step in train)
    turns = [count for count in KNOTS if 4 <= count < most]
    rooflines = [_fit("roofline", train, LONG, (turn,), flat_start=True) for turn in turns]
    return [
        _fit("linear", train, SHORT, ()),
        _fit("linear_chunks", train, LONG, ()),
        *([min(rooflines, key=lambda fit: errors_of(fit, train).mape)] if rooflines else []),
        _fit("knots", train, LONG, KNOTS),
    ]


def _fit(form: str, train: Sequence[Step], names: Sequence[str], knots: Sequence[int], flat_start: bool = False) -> Fit:
    from scipy.optimize import nnls

    shared = np.array([[step.features[name] for name in names] for step in train])
    seconds = np.array([step.seconds for step in train])
    curves = {}
    for graph in (False, True):
        rows = sorted({step.rows for step in train if step.graph == graph})
        if rows:
            ends = max(rows[-1], rows[0] + 1)
            curves[graph] = sorted({rows[0], ends, *(knot for knot in knots if rows[0] < knot < ends)})
    ramps = np.hstack([_ramps(train, graph, counts, flat_start) for graph, counts in curves.items()])
    solution, _ = nnls(np.hstack([ramps, shared]) / seconds[:, None], np.ones(len(train)))
    tables: dict[bool, dict[int, float]] = {}
    start = 0
    for graph, counts in curves.items():
        rises = solution[start : start + len(counts)]
        start += len(counts)
        tables[graph] = dict(zip(counts, np.cumsum(rises).tolist(), strict=True))
    each = dict(zip(names, solution[start:].tolist(), strict=True))
    return Fit(form, tables.get(False) or tables[True], tables.get(True, {}), Coefficients(**each))


def _ramps(train: Sequence[Step], graph: bool, counts: Sequence[int], flat_start: bool) -> FloatArray:
    """A column for the time at the first count, and one for the rise between each two."""
    ours = np.array([step.graph == graph for step in train], dtype=float)
    rows = np.array([step.rows for step in train], dtype=float)
    columns = [ours]
    for index, (low, high) in enumerate(pairwise(counts)):
        part = np.clip((rows - low) / (high - low), 0, 1)
        columns.append(ours * part * (0.0 if flat_start and index == 0 and len(counts) > 2 else 1.0))
    return np.column_stack(columns)


def _along(table: dict[int, float], count: int) -> float:
    counts = sorted(table)
    right = next((index for index, each in enumerate(counts) if each >= count), len(counts) - 1)
    low, high = counts[max(right, 1) - 1], counts[max(right, 1)]
    return max(table[low] + (table[high] - table[low]) * (count - low) / (high - low), 0.0)
