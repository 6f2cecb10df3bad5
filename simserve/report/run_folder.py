"""The folder of a run: its records, its summary and its scenario, enough to make every report again.

    summary.json      all numbers
    requests.parquet  one row a request
    steps.parquet     one row a run of equal steps
    gaps.parquet      gaps between tokens that are longer than a step, for exact inter-token latencies
    attempts.parquet  one row an attempt, where clients give up and send again
    scenario.yaml     the question with every default resolved

A folder is written aside and renamed, so that it is whole or not there; the same run gives the same bytes.
"""

import json
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simserve.report.records import read_columns, write_csv, write_parquet
from simserve.report.summary import Summary, summarize
from simserve.spec.errors import ScenarioError
from simserve.spec.result import Result

if TYPE_CHECKING:
    import pandas as pd

SUMMARY, REQUESTS, STEPS, GAPS, ATTEMPTS, SCENARIO = (
    "summary.json",
    "requests.parquet",
    "steps.parquet",
    "gaps.parquet",
    "attempts.parquet",
    "scenario.yaml",
)


@dataclass(frozen=True)
class RunFolder:
    """A run as it was written: everything that plots and pages are made from."""

    path: Path
    result: Result
    summary: Summary

    @cached_property
    def requests(self) -> "pd.DataFrame":
        """One row a request, as in requests.parquet (seconds, tokens)."""
        return _frame(self.path / REQUESTS)

    @cached_property
    def steps(self) -> "pd.DataFrame":
        """One row a run of equal steps, as in steps.parquet (seconds, tokens, blocks)."""
        return _frame(self.path / STEPS)


def _frame(path: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_parquet(path)


def write_run(
    result: Result,
    out: Path,
    force: bool = False,
    *,
    csv: bool = False,
    report: bool = False,
    summary: Summary | None = None,
) -> RunFolder:
    """Write the folder of a run; `csv` adds its records as CSV, `report` a page and its pictures.

    `summary` spares the time to compute it again.

    Raises FileExistsError where `out` exists and `force` is not set, ScenarioError where it exists and is no run folder
    (`force` replaces runs, nothing else). Whatever goes wrong, `out` is left as it was.
    """
    check_free(out, force)
    summary = summarize(result) if summary is None else summary
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    try:
        _write_files(result, summary, aside, csv)
        if report:
            from simserve.report.html import write_report

            write_report(RunFolder(aside, result, summary))
        aside.chmod(0o755)
        _put_in_place(aside, out)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return RunFolder(out, result, summary)


def check_free(out: Path, force: bool = False) -> None:
    """Raise as `write_run` would, before the run has cost any time."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise FileExistsError(f"{out} exists")
    if not (out / SUMMARY).is_file() or not (out / SCENARIO).is_file():
        raise ScenarioError(f"{out}: is not the folder of a run, so it is not replaced; choose another place")


def _write_files(result: Result, summary: Summary, folder: Path, csv: bool) -> None:
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    (folder / SCENARIO).write_text(_header(summary) + result.scenario.to_yaml(), encoding="utf-8")
    for name, columns in ((REQUESTS, result.requests), (STEPS, result.steps), (GAPS, result.gaps)):
        write_parquet(columns, result.class_names, folder / name)
    if result.attempts:
        write_parquet(result.attempts, result.class_names, folder / ATTEMPTS)
    if csv:
        for name in (REQUESTS, STEPS, *([ATTEMPTS] if result.attempts else [])):
            write_csv(folder / name)


def _header(summary: Summary) -> str:
    facts = {"simserve": summary.get("version"), "hardware profile": summary.get("profile_hash")}
    return "".join(f"# {name}: {value}\n" for name, value in facts.items() if value)


def _put_in_place(aside: Path, out: Path) -> None:
    """Rename the finished folder to its name; an older run stays until the new one stands there."""
    if not out.exists():
        aside.rename(out)
        return
    old = aside.with_suffix(".old")
    out.rename(old)
    try:
        aside.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old)


def read_run(path: Path) -> RunFolder:
    """Read the folder that `write_run` wrote.

    Raises ScenarioError where it is not one.
    """
    from simserve.spec.load import load_scenario

    path = Path(path)
    missing = [name for name in (SUMMARY, SCENARIO, REQUESTS, STEPS, GAPS) if not (path / name).is_file()]
    if missing:
        raise ScenarioError(f"{path}: is not the folder of a run, {missing[0]} is missing")
    summary: Summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
    class_names = tuple(summary["class_names"])
    requests, steps, gaps = (read_columns(path / name, class_names) for name in (REQUESTS, STEPS, GAPS))
    result = Result(
        scenario=load_scenario(path / SCENARIO),
        requests=requests,
        steps=steps,
        gaps=gaps,
        class_names=class_names,
        memory=summary["memory"],
        meta=summary | {"duration": summary["simulated_time"]},
        attempts=read_columns(path / ATTEMPTS, class_names) if (path / ATTEMPTS).is_file() else {},
    )
    return RunFolder(path, result, summary)
