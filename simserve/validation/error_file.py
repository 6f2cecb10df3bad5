"""The errors of a table of measured runs as the small file that every later run is shown with."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from simserve.spec import resources
from simserve.spec.measured_error import COLUMNS, Simulated
from simserve.validation.errors import Error

ENOUGH = 5
"""Runs of a model from which it has a median of its own."""
METRICS = {"ttft_mean_ms": "mean TTFT", "tpot_mean_ms": "mean TPOT", "output_tput_tok_s": "output tokens/s"}
"""Column of a table of measured runs -> how the file names it."""


def write_errors(errors: Iterable[Error], path: Path) -> int:
    """Write the median error of each metric by GPU and cost level, over all models and by model, whole or not at all;
    returns the number of its lines. GPUs without a profile of their own are left out.
    """
    known = set(resources.names("hardware_profiles"))
    groups: dict[tuple[Simulated, str], list[Error]] = {}
    for error in errors:
        own = error.prediction.simulated
        if own is not None and own.gpu in known and error.metric in METRICS:
            for key in (own, own.of_any_model):
                groups.setdefault((key, METRICS[error.metric]), []).append(error)
    groups = {key: group for key, group in groups.items() if not key[0].model or len(group) >= ENOUGH}
    order = list(METRICS.values())
    aside = path.with_name(f".{path.name}.part")
    with aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (key, metric), group in sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1]))):
            median = statistics.median(abs(each.error) for each in group)
            writer.writerow([*key, metric, f"{median:.4f}", len(group), _versions(group)])
    aside.replace(path)
    return len(groups)


def _versions(group: Sequence[Error]) -> str:
    """First and last engine version that rows state."""
    stated = {each.prediction.run.text("engine_version") for each in group} - {""}
    if not stated:
        return ""
    first, last = (choose(stated, key=_numbers) for choose in (min, max))
    return first if first == last else f"{first} to {last}"


def _numbers(version: str) -> list[tuple[int, str]]:
    """A version in the order of its numbers: 0.9 comes before 0.11."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in version.split(".")]
