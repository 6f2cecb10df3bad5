"""`simserve run` and `simserve report`: one scenario simulated, and its records made readable."""

from pathlib import Path
from typing import Annotated

import typer

from simserve.cli.arguments import Force, Json, Overrides, ScenarioName, load
from simserve.cli.console import NOTHING_SUCCEEDED, SLO_MISSED, fail, print_json, progress_bar, say


def run(
    scenario: ScenarioName,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the records; without it only the table is printed.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Add report.html and its plots to the folder.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Add the records as CSV.")] = False,
    force: Force = False,
    fail_on_slo: Annotated[bool, typer.Option("--fail-on-slo", help="Exit with 3 when the SLO is missed.")] = False,
    json: Json = False,
) -> None:
    """Simulate a scenario; print its latencies and throughput.

    Ends with code 2 where the scenario is not valid, with 3 where --fail-on-slo is given and the SLO is missed, with 4
    where no request succeeded.

    Example: simserve run quickstart cluster.replicas=2 -o runs/two --report
    """
    if out is None and (report or csv):
        fail("--report and --csv need a folder: add -o DIR")
    spec = load(scenario, overrides)

    from simserve.report.run_folder import check_free
    from simserve.report.summary import summarize
    from simserve.report.table import benchmark_table
    from simserve.report.write_run import write_run
    from simserve.simulation import simulate

    if fail_on_slo and spec.slo is None:
        fail("--fail-on-slo needs an SLO in the scenario, e.g. slo.ttft='500 ms'")
    if out is not None:
        check_free(out, force)
    with progress_bar("simulating") as progress:
        result = simulate(spec, progress)
    summary = summarize(result)
    if out is not None:
        write_run(result, out, force, csv=csv, report=report, summary=summary)
        say(f"wrote {out / 'report.html' if report else out}")
    if json:
        print_json(summary)
    else:
        typer.echo(benchmark_table(summary))
    if not summary["completed"]:
        say("no request succeeded")
        raise typer.Exit(NOTHING_SUCCEEDED)
    if fail_on_slo and not summary["slo_met"]:
        say("SLO missed")
        raise typer.Exit(SLO_MISSED)


def report(folder: Annotated[Path, typer.Argument(help="Folder that `simserve run -o` wrote.")]) -> None:
    """Write report.html and its plots into the folder of a run."""
    from simserve.report.html import write_report
    from simserve.report.run_folder import read_run

    say(f"wrote {write_report(read_run(folder))}")
