"""Writing the folder of a run: aside first, then renamed, so that it is whole or not there."""

import json
import shutil
import tempfile
from pathlib import Path

from simserve.report.records import write_csv, write_parquet
from simserve.report.run_folder import ATTEMPTS, GAPS, REQUESTS, SCENARIO, STEPS, SUMMARY, RunFolder, check_free
from simserve.report.summary import Summary, summarize
from simserve.spec.result import Result


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
