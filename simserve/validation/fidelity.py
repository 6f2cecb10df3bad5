"""Proves that simserve's scheduler decides what an engine's scheduler decided, step by step and field by field.

A folder holds `NAME.in.json`, a workload, beside `NAME.trace.json` (or `.json.gz`), what an engine made of it. Each
workload is replayed twice, stepping and with runs of equal steps decided at once, and must agree in every field.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simserve.spec.errors import ScenarioError
from simserve.validation.recording import (
    Json,
    SchedulerWorkload,
    WorkloadConfig,
    load_trace,
    load_workload,
    parse_config,
)
from simserve.validation.replay import replay

if TYPE_CHECKING:
    from rich.console import Console

WHOLE_TRACE = ("num_steps", "stalled", "unfinished", "totals", "summary")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay first leaves the recording: the step (-1: the whole trace), the field, and both values as JSON."""

    resolution: str
    step: int
    field: str
    simserve: str
    recorded: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One workload: who recorded it, how many steps its recording has, and the first difference, if any."""

    name: str
    engine: str
    steps: int
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """All workloads of a folder."""

    directory: str
    comparisons: tuple[Comparison, ...]

    @property
    def ok(self) -> bool:
        """Whether something was compared, and nothing differs."""
        return bool(self.comparisons) and all(comparison.difference is None for comparison in self.comparisons)

    @property
    def num_steps(self) -> int:
        """Steps of all recordings."""
        return sum(comparison.steps for comparison in self.comparisons)


def run_fidelity(directory: str | Path, json_path: str | Path | None = None) -> FidelityReport:
    """Compare every workload of a folder with its recorded trace; with `json_path` write the report there as well.

    Raises ScenarioError if there is nothing to compare, a trace is missing or a file is not what it should be.
    """
    folder = Path(directory)
    paths = sorted(folder.glob("*.in.json")) if folder.is_dir() else []
    if not paths:
        what = "no workload NAME.in.json here" if folder.is_dir() else "no such folder"
        raise ScenarioError(f"{folder}: {what}; record one as tests/golden/FORMAT.md describes")
    report = FidelityReport(str(folder), tuple(compare_workload(path) for path in paths))
    if json_path is not None:
        _write_json(report, Path(json_path))
    return report


def compare_workload(path: Path) -> Comparison:
    """Replay the workload `NAME.in.json` and compare with the trace beside it. Raises ScenarioError."""
    name = path.name.removesuffix(".in.json")
    recorded = load_trace(_find_trace(path, name))
    workload = _with_recorded_config(load_workload(path), recorded, path)
    difference = None
    for resolution in ("steps", "runs"):
        trace = replay(workload, runs=resolution == "runs")
        difference = difference or find_difference(trace, recorded, resolution)
    steps = recorded["steps"]
    assert isinstance(steps, list)
    return Comparison(name, _engine(recorded), len(steps), difference)


def find_difference(trace: Json, recorded: Json, resolution: str = "steps") -> Difference | None:
    """The first step and field in which a replay's trace is not the recorded one; None if they agree."""
    ours, theirs = trace["steps"], recorded["steps"]
    assert isinstance(ours, list)
    assert isinstance(theirs, list)
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine == other and list(mine.get("scheduled", ())) == list(other.get("scheduled", ())):
            continue
        for field in dict.fromkeys((*other, *mine)):
            if field == "cached_blocks" and resolution == "runs" and field not in mine:
                continue  # within a run
            if field not in mine or field not in other or mine[field] != other[field]:
                return Difference(resolution, index, field, _show(mine, field), _show(other, field))
        if list(mine.get("scheduled", ())) != list(other.get("scheduled", ())):
            return Difference(
                resolution, index, "order of scheduled", _show(mine, "scheduled"), _show(other, "scheduled")
            )
    if len(ours) != len(theirs):
        return Difference(resolution, min(len(ours), len(theirs)), "num_steps", str(len(ours)), str(len(theirs)))
    for field in WHOLE_TRACE:
        if trace.get(field) != recorded.get(field) or _order(trace.get(field)) != _order(recorded.get(field)):
            return Difference(resolution, -1, field, _show(trace, field), _show(recorded, field))
    return None


def _order(value: object) -> list[str]:
    """Keys in their order: the summary tells who finished first. Of `totals` the order says nothing."""
    return list(value) if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()) else []


def print_fidelity(report: FidelityReport, console: "Console | None" = None) -> None:
    """Print one line per workload, and what differs first where something does."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    table = Table("workload", "recorded from", "first difference", box=None, pad_edge=False)
    table.add_column("steps", justify="right")
    for comparison in report.comparisons:
        difference = comparison.difference
        place = "none" if difference is None else _place(difference)
        table.add_row(comparison.name, comparison.engine, place, str(comparison.steps))
    console.print(table)
    different = [comparison for comparison in report.comparisons if comparison.difference]
    for comparison in different:
        difference = comparison.difference
        assert difference is not None
        console.print(f"\n{comparison.name}, {_place(difference)}", highlight=False)
        console.print(f"  simserve {difference.simserve}", highlight=False, markup=False)
        console.print(f"  recorded {difference.recorded}", highlight=False, markup=False)
    verdict = f"{len(different)} differ" if different else "all equal, in every field of every step"
    console.print(f"\n{len(report.comparisons)} workloads, {report.num_steps} steps: {verdict}", highlight=False)


def _place(difference: Difference) -> str:
    where = "whole trace" if difference.step < 0 else f"step {difference.step}"
    return f"{where}: {difference.field}" + (" (with runs)" if difference.resolution == "runs" else "")


def _show(record: Json, field: str) -> str:
    return json.dumps(record[field]) if field in record else "(absent)"


def _find_trace(path: Path, name: str) -> Path:
    for ending in (".trace.json.gz", ".trace.json"):
        trace = path.with_name(name + ending)
        if trace.exists():
            return trace
    raise ScenarioError(f"{path}: no recorded trace {name}.trace.json or .trace.json.gz beside it")


def _with_recorded_config(workload: SchedulerWorkload, recorded: Json, path: Path) -> SchedulerWorkload:
    """The workload under the settings that the trace was recorded with, every default of that recorder resolved."""
    config = parse_config(recorded.get("config", {}), f"{path}: config of its trace")
    for key in workload.config.model_fields_set & config.model_fields_set:
        asked, used = getattr(workload.config, key), getattr(config, key)
        if asked != used:
            raise ScenarioError(
                f"{path}: {key} is {asked!r} here and {used!r} in the trace: not recorded from this workload"
            )
    merged = workload.config.model_dump(exclude_unset=True) | config.model_dump(exclude_unset=True)
    return workload.model_copy(update={"config": WorkloadConfig(**merged)})


def _engine(recorded: Json) -> str:
    """Who recorded a trace, as its `oracle` says: `vllm 0.32.0 AsyncScheduler`."""
    oracle = recorded.get("oracle")
    if not isinstance(oracle, dict):
        return "unknown"
    words = [f"{key} {value}" if key != "scheduler" else str(value) for key, value in oracle.items()]
    return " ".join(words)


def _write_json(report: FidelityReport, path: Path) -> None:
    """Write the report aside and move it into place."""
    content = asdict(report) | {"ok": report.ok}
    aside = path.with_name(path.name + ".part")
    try:
        aside.write_text(json.dumps(content, indent=2) + "\n")
        aside.replace(path)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be written: {error}") from None
