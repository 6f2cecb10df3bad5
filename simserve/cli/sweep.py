"""`simserve sweep`: a scenario at several values of some keys."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from simserve.cli.arguments import Json, ScenarioName, Seeds, Workers, scenario_path
from simserve.cli.console import fail, print_json, print_notes, print_table, progress_bar, say

SHOWN = {
    "offered_rate": "offered/s",
    "request_throughput": "done/s",
    "output_throughput": "tok/s",
    "p95_ttft_ms": "p95 TTFT ms",
    "p95_tpot_ms": "p95 TPOT ms",
    "slo_attainment": "in SLO",
    "saturation": "saturation",
}
"""Columns of the table of a sweep, of the many in sweep.csv."""


def sweep(
    scenario: ScenarioName,
    axes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=V1,V2,...]...",
            show_default=False,
            help="Scenario keys and their values; all combinations run.",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("-o", "--out", show_default=False, help="Folder for the results.")],
    rates: Annotated[
        str | None,
        typer.Option("--rates", metavar="R1,R2,...", help="Arrival rates (requests/s) to try, of a trace too."),
    ] = None,
    seeds: Seeds = 1,
    workers: Workers = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what the folder holds already.")] = False,
    json: Json = False,
) -> None:
    """Run a scenario at several values of some keys: a table, sweep.csv and pictures.

    Points that the folder holds already are not run again, unless --force is given.

    Example: simserve sweep poisson-chat --rates 2,4,8,16 cluster.tensor_parallel=1,2 -o runs/curve
    """
    from simserve.planning.executor import default_workers, open_executor
    from simserve.planning.pictures import write_pictures
    from simserve.planning.sweep import damaged_points, parse_axis, rate_axis, run_sweep, sweep_points

    if not axes and not rates:
        fail("nothing to vary: give KEY=V1,V2,... or --rates 2,4,8")
    path = scenario_path(scenario)
    grid = [parse_axis(text) for text in axes or []]
    if rates:
        grid.append(rate_axis(path, grid, rates))
    points = sweep_points(path, grid, seeds)
    if not force and (damaged := damaged_points(points, out)):
        say(f"{out}: {damaged} stored points are damaged or of another version, and are run again")
    try:
        with (
            open_executor(workers or default_workers(len(points))) as executor,
            progress_bar(f"{len(points)} runs", len(points), patience=0) as progress,
        ):
            rows = run_sweep(points, out, executor, progress, force=force)
    except KeyboardInterrupt:
        say(f"{out} keeps the runs that are done; the same command goes on from there")
        raise
    slo = next(point.scenario.slo for point in points if point.scenario is not None)
    pictures = write_pictures(rows, grid, slo, out)
    if json:
        print_json(rows)
    else:
        _print_rows(rows, [axis.key for axis in grid if len(axis.values) > 1] + ["seed"] * (seeds > 1))
        print_notes(dict.fromkeys(row["notes"] for row in rows if row["notes"]))
    say(f"wrote {', '.join(str(path) for path in [out / 'sweep.csv', out / 'sweep.json', *pictures])}")
    for error in dict.fromkeys(row["error"] for row in rows if row["error"]):
        say(f"left out: {error}")
    if all(row["error"] for row in rows):
        fail("no point could be simulated")


def _print_rows(rows: Sequence[dict[str, Any]], keys: list[str]) -> None:
    columns = [key.rpartition(".")[2] for key in keys] + list(SHOWN.values())
    print_table("", columns, [[_cell(key, row.get(key)) for key in [*keys, *SHOWN]] for row in rows])


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key == "slo_attainment":
        return f"{value:.1%}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
