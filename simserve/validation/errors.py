"""Errors of predictions: one per measured value, and their statistics over groups of rows."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from simserve.validation.measured import METRICS, MeasuredRun
from simserve.validation.prediction import Prediction

NOISE_FLOOR = {
    "tpot_mean_ms": (0.005, 0.02),
    "tpot_p99_ms": (0.008, 0.036),
    "ttft_mean_ms": (0.09, 0.76),
    "ttft_p99_ms": (0.06, 0.79),
    "output_tput_tok_s": (0.007, 0.16),
}
"""Coefficient of variation from run to run, median and 90th percentile over 98 configurations that InferenceMAX ran
three nights or more."""
SATURATED = 10.0
"""TTFT off by this factor: one of the two queued and the other did not."""


class Error(NamedTuple):
    """One measured value and its prediction."""

    prediction: Prediction
    metric: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative: predicted / measured - 1."""
        return self.predicted / self.measured - 1

    def as_dict(self) -> dict[str, object]:
        """As the JSON has it."""
        run = self.prediction.run
        cells = {"id": run.name, **{key: run.text(key) for key in ("tier", "gpu", "model")}}
        return {
            **cells,
            "metric": self.metric,
            "measured": self.measured,
            "predicted": self.predicted,
            "error": self.error,
        }


class Group(NamedTuple):
    """Statistics of the errors of one metric over some rows; `roofline` is there for mean TPOT alone."""

    by: str
    value: str
    metric: str
    rows: int
    median_abs: float
    mean_abs: float
    bias: float
    roofline_mean_abs: float | None = None
    roofline_bias: float | None = None


def errors_of(predictions: Iterable[Prediction]) -> list[Error]:
    """All errors, in the order of rows and columns."""
    return [
        Error(each, metric, each.run.measured[metric], each.values[metric])
        for each in predictions
        for metric in METRICS
        if metric in each.run.measured and metric in each.values
    ]


def running_at_once(run: MeasuredRun) -> float | None:
    """Requests in the server: users of a closed loop, else rate x latency (Little's law)."""
    rate, latency = run.number("request_rate_rps"), run.measured.get("e2e_mean_ms")
    return run.number("max_concurrency") or (rate * latency / 1e3 if rate and latency else None)


def _load_of(run: MeasuredRun) -> str:
    running = running_at_once(run)
    if running is None:
        return "not stated"
    for least, name in ((65, "over 64"), (17, "17 to 64"), (5, "5 to 16")):
        if running >= least:
            return name
    return "up to 4"


GROUPS: dict[str, Callable[[Prediction], str]] = {
    "all": lambda _: "all",
    "tier": lambda each: each.run.text("tier"),
    "gpu": lambda each: each.run.text("gpu"),
    "model": lambda each: each.run.text("model").split("/")[-1],
    "engine version": lambda each: each.run.text("engine_version") or "not stated",
    "arrivals": lambda each: each.run.text("arrival_process").split(" (")[0],
    "running at once": lambda each: _load_of(each.run),
    "prompts": lambda each: "in the prefix cache" if each.hits else "computed",
}
"""What rows are grouped by."""


def summary_of(errors: Sequence[Error]) -> list[Group]:
    """Statistics by group and metric."""
    return [group for by, value_of in GROUPS.items() for group in _grouped(by, value_of, errors)]


def _grouped(by: str, value_of: Callable[[Prediction], str], errors: Sequence[Error]) -> Iterator[Group]:
    found: defaultdict[tuple[str, str], list[Error]] = defaultdict(list)
    for error in errors:
        found[value_of(error.prediction), error.metric].append(error)
    for value, metric in sorted(found, key=lambda key: (key[0], METRICS.index(key[1]))):
        yield _statistics(by, value, metric, found[value, metric])


def _statistics(by: str, value: str, metric: str, errors: Sequence[Error]) -> Group:
    relative = [each.error for each in errors]
    absolute = [abs(each) for each in relative]
    group = Group(
        by,
        value,
        metric,
        len(errors),
        statistics.median(absolute),
        statistics.fmean(absolute),
        statistics.fmean(relative),
    )
    naive = [each.prediction.roofline / each.measured - 1 for each in errors if each.prediction.roofline]
    if metric != "tpot_mean_ms" or not naive:
        return group
    return group._replace(roofline_mean_abs=statistics.fmean(map(abs, naive)), roofline_bias=statistics.fmean(naive))


def false_saturations(errors: Iterable[Error]) -> list[Error]:
    """Mean TTFTs that are off by a factor of ten or more."""
    return [
        each
        for each in errors
        if each.metric == "ttft_mean_ms" and not 1 / SATURATED < each.predicted / each.measured < SATURATED
    ]
