"""The folder of a run: its records, its summary and its scenario, enough to make every report again.

    summary.json      all numbers
    requests.parquet  one row a request
    steps.parquet     one row a run of equal steps
    gaps.parquet      gaps between tokens that are longer than a step, for exact inter-token latencies
    attempts.parquet  one row an attempt, where clients give up and send again
    scenario.yaml     the question with every default resolved

The same run gives the same bytes; `simserve.report.write_run` writes them.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simserve.report.records import read_columns
from simserve.report.summary import Summary
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


def check_free(out: Path, force: bool = False) -> None:
    """Raise as `write_run` would, before the run has cost any time."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise FileExistsError(f"{out} exists")
    if not (out / SUMMARY).is_file() or not (out / SCENARIO).is_file():
        raise ScenarioError(f"{out}: is not the folder of a run, so it is not replaced; choose another place")


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
