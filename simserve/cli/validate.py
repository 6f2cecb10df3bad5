"""`simserve validate` and `simserve fit-server`: the simulator against measured servers."""

from pathlib import Path
from typing import Annotated

import typer

from simserve.cli.arguments import Workers
from simserve.cli.console import fail, guarded, progress_bar, results_console, say

validate = typer.Typer(no_args_is_help=True, help="Compare predictions with measured servers.")


@validate.command()
@guarded
def table(
    runs: Annotated[Path, typer.Argument(metavar="TABLE.csv", show_default=False, help="Measured runs, one a row.")],
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every error to this file.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw predicted against measured: FILE.svg and .png.")
    ] = None,
    tier: Annotated[str | None, typer.Option("--tier", metavar="A|B|C", help="Take rows of this tier only.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Take the first N rows.")] = None,
    workers: Workers = None,
) -> None:
    """Simulate every run of a table and print predicted against measured.

    What a row does not state takes the default of its engine's version, and is listed.

    Example: simserve validate table runs.csv --tier A --json errors.json --plot errors
    """
    from simserve.planning.executor import default_workers, open_executor
    from simserve.validation.printing import print_report, save_pictures
    from simserve.validation.table import chosen_rows, validate_table, write_json

    for path in (json, plot):
        if path is not None and not path.absolute().parent.is_dir():
            fail(f"{path}: there is no folder {path.absolute().parent}")
    rows = chosen_rows(runs, tier, limit)
    with (
        progress_bar(f"{len(rows)} runs") as progress,
        open_executor(workers or default_workers(len(rows))) as executor,
    ):
        report = validate_table(rows, executor, progress)
    print_report(report, results_console())
    if json is not None:
        write_json(report, json)
        say(f"wrote {json}")
    if plot is not None:
        stem = plot.with_suffix("") if plot.suffix in {".svg", ".png"} else plot
        for path in save_pictures(report, stem):
            say(f"wrote {path}")
