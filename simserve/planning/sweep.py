"""One scenario, some of its keys at several values each: a run per combination, a row per run.

Every point is a resolved scenario. Its row is stored under the hash of that scenario as soon as the run ends, so that a
sweep that was stopped, or is asked for with more values, computes only what is missing.
"""

import csv
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from simserve import __version__
from simserve.planning.executor import results
from simserve.planning.load import load_of
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import load_scenario
from simserve.spec.scenario import Scenario
from simserve.spec.workload import data_path

Row = dict[str, Any]


class Axis(NamedTuple):
    """A scenario key and the values it takes, as YAML texts."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One combination: what was set (key -> YAML text), the scenario it gives or the `error` that it ends in, its seed
    (None without a scenario), and the name its row is stored under.
    """

    settings: Mapping[str, str]
    scenario: Scenario | None
    key: str
    error: str = ""

    @property
    def seed(self) -> int | None:
        """Seed of its run."""
        return None if self.scenario is None else self.scenario.seed

    def said(self, error: str) -> str:
        """An error with what was set there."""
        return f"{', '.join(f'{key}={value}' for key, value in self.settings.items())}: {error}"


def parse_axis(text: str) -> Axis:
    """Axis of `key=v1,v2,...`; commas inside brackets, braces or quotes belong to a value.

    Raises ScenarioError where there is no key or a value is empty.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip():
        raise ScenarioError(f"{text!r}: expected key=value,value,..., e.g. workload.arrivals.rate=2,4,8")
    axis = Axis(key.strip(), tuple(value.strip() for value in _split(values)))
    if "" in axis.values:
        raise ScenarioError(f"{text!r}: a value is empty; write the values with single commas between them")
    return axis


def _split(text: str) -> Iterator[str]:
    """Parts between the commas that stand outside brackets and quotes."""
    depth, quote, start = 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def rate_axis(path: Path, others: Sequence[Axis], rates: str) -> Axis:
    """Axis of arrival rates `r1,r2,...`, whatever key turns them: the arrivals' rate, or the speed-up of a trace.

    `others` are set to their first values, since the rate of a trace depends on how much of it is taken. Raises
    ScenarioError for a workload without a rate, and a rate that is no number.
    """
    scenario = load_scenario(path, [f"{axis.key}={axis.values[0]}" for axis in others])
    load = load_of(scenario)
    if load.whole:
        raise ScenarioError(f"--rates: this workload has no rate; vary {load.key}=V1,V2,...")
    values = parse_axis(f"{load.key}={rates}").values
    try:
        settings = [load.setting(float(value)) for value in values]
    except ValueError:
        raise ScenarioError(f"--rates: expected numbers such as 2,4,8, got {rates!r}") from None
    return Axis(load.key, tuple(setting.partition("=")[2] for setting in settings))


def sweep_points(path: Path, axes: Sequence[Axis], seeds: int = 1) -> list[Point]:
    """Every combination of the axes' values, the last axis fastest, each with `seeds` seeds from the scenario's own on.

    A combination that is not a valid scenario has its error with it, and the others run.

    Raises ScenarioError for a key given twice, and where no combination is valid, before anything ran.
    """
    keys = [axis.key for axis in axes]
    if duplicates := {key for key in keys if keys.count(key) > 1}:
        raise ScenarioError(f"{min(duplicates)}: given twice; put all its values into one list")
    if seeds > 1 and "seed" in keys:
        raise ScenarioError("seed: given as an axis and through --seeds; use one of them")
    points = []
    for values in itertools.product(*(axis.values for axis in axes)):
        settings = dict(zip(keys, values, strict=True))
        try:
            scenario = load_scenario(path, [f"{key}={value}" for key, value in settings.items()])
        except ScenarioError as error:
            points.append(_invalid(settings, str(error)))
            continue
        points += [_point(settings, scenario, seed) for seed in range(scenario.seed, scenario.seed + seeds)]
    if not any(point.scenario for point in points):
        raise ScenarioError(points[0].error)
    return points


def _invalid(settings: dict[str, str], error: str) -> Point:
    """A combination that is not a valid scenario."""
    digest = hashlib.sha256(f"{__version__}\n{settings}\n{error}".encode())
    return Point(settings, None, digest.hexdigest()[:16], error)


def _point(settings: dict[str, str], scenario: Scenario, seed: int) -> Point:
    seeded = scenario if seed == scenario.seed else scenario.with_overrides([f"seed={seed}"])
    return Point(settings, seeded, scenario_key(seeded))


def scenario_key(scenario: Scenario) -> str:
    """Hash of everything a run depends on: version, resolved scenario, and the contents of the files it reads."""
    digest = hashlib.sha256(f"{__version__}\n{scenario.to_yaml()}".encode())
    for file in _data_files(scenario.workload.model_dump()):
        digest.update(data_path(file).read_bytes())
    return digest.hexdigest()[:16]


def _data_files(value: Any) -> Iterator[str]:
    """Every `file` named in a dumped workload: a trace, lists of lengths."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _data_files(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "file" and isinstance(item, str):
                yield item
            else:
                yield from _data_files(item)


def run_sweep(
    points: Sequence[Point],
    out: Path,
    executor: Executor,
    progress: Callable[[int], None] = lambda _: None,
    *,
    force: bool = False,
) -> list[Row]:
    """Run the points that `out` does not hold yet (with `force` all), write `sweep.json` and `sweep.csv`.

    The rows come back in the order of the points; `progress` hears how many are done. A deployment that cannot exist
    gives a row with an `error` and no results, and the others go on.
    """
    store = out / "points"
    store.mkdir(parents=True, exist_ok=True)
    missing = {point.key: point for point in points if force or _stored(store, point) is None}
    progress(len(points) - len(missing))
    for done, (point, row) in enumerate(results(executor, run_point, missing.values()), len(points) - len(missing) + 1):
        _write(store / f"{point.key}.json", json.dumps({"checksum": _checksum(point, row), "summary": row}))
        progress(done)
    rows = [_row(point, _stored(store, point) or {}) for point in points]
    write_table(rows, out)
    return rows


def _stored(store: Path, point: Point) -> Row | None:
    """The summary that was stored for a point; None where there is none, or the file is not what was written for it:
    damaged, changed, of another point, or of a simserve that stored them otherwise.
    """
    try:
        found = json.loads((store / f"{point.key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    summary = found.get("summary") if isinstance(found, dict) else None
    if not isinstance(summary, dict) or found.get("checksum") != _checksum(point, summary):
        return None
    return summary


def _checksum(point: Point, summary: Row) -> str:
    """What a stored summary is known by: changes to it, or of its point, change this."""
    return hashlib.sha256(f"{point.key}\n{json.dumps(summary)}".encode()).hexdigest()[:16]


def damaged_points(points: Sequence[Point], out: Path) -> int:
    """How many points have a stored file that is not what was written for them; they are run again."""
    store = out / "points"
    return sum((store / f"{point.key}.json").exists() and _stored(store, point) is None for point in points)


def run_point(point: Point) -> Row:
    """Summary of one run, or its `error` where the deployment cannot exist. Runs in a worker."""
    from simserve.report.summary import summarize

    if point.scenario is None:
        return {"error": point.said(point.error)}
    try:
        return summarize(simulate(point.scenario))
    except ScenarioError as error:
        return {"error": point.said(str(error))}


def _row(point: Point, summary: Row) -> Row:
    """What was set, then what came of it: the summary's numbers and words, without its nested tables."""
    settings = {key: _plain(value) for key, value in point.settings.items()}
    results = {key: value for key, value in summary.items() if not isinstance(value, dict | list)}
    notes = "; ".join(summary.get("notes") or ()) or None
    return settings | {"seed": point.seed, "error": None} | results | {"notes": notes}


def _plain(value: str) -> Any:
    """The number or word that a YAML text stands for; a mapping or list stays text."""
    parsed = yaml.safe_load(value)
    return value if isinstance(parsed, dict | list) else parsed


def write_table(rows: Sequence[Row], out: Path) -> None:
    """`sweep.json`, a list of rows, and `sweep.csv`, the same as a table."""
    _write(out / "sweep.json", json.dumps(rows, indent=1) + "\n")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    partial = out / "sweep.csv.partial"
    with partial.open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)
    partial.replace(out / "sweep.csv")


def _write(path: Path, text: str) -> None:
    """Write aside, then rename: a file is whole or not there."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(text)
    partial.replace(path)
