"""The errors of a table of measured runs as the small file that every later run is shown with."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simserve.spec import resources
from simserve.validation.errors import Error

if TYPE_CHECKING:
    from simserve.report.evidence import Deployment

METRICS = {"ttft_mean_ms": "mean TTFT", "tpot_mean_ms": "mean TPOT", "output_tput_tok_s": "output tokens/s"}
"""Column of a table of measured runs -> how the file names it."""


def write_errors(errors: Iterable[Error], path: Path) -> int:
    """Write the median error of each metric for each deployment, whole or not at all; returns the number of its lines.
    GPUs without a profile of their own are left out.
    """
    from simserve.report.evidence import COLUMNS

    known = set(resources.names("hardware_profiles"))
    groups: dict[tuple[Deployment, str], list[Error]] = {}
    for error in errors:
        own = error.prediction.deployment
        if own is not None and own.gpu in known and error.metric in METRICS:
            groups.setdefault((own, METRICS[error.metric]), []).append(error)
    order = list(METRICS.values())
    aside = path.with_name(f".{path.name}.part")
    with aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (own, metric), group in sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1]))):
            median = statistics.median(abs(each.error) for each in group)
            most = max(each.prediction.concurrency for each in _all(groups, own))
            writer.writerow([*own, most, metric, f"{median:.4f}", len(group), _versions(group)])
    aside.replace(path)
    return len(groups)


def _all(groups: "dict[tuple[Deployment, str], list[Error]]", own: "Deployment") -> list[Error]:
    """All errors of a deployment."""
    return [each for (other, _), group in groups.items() if other == own for each in group]


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
