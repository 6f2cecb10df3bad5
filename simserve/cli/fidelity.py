"""`simserve fidelity`: the scheduler replayed against what a real engine recorded."""

from pathlib import Path
from typing import Annotated

import typer

from simserve.cli.console import results_console, say

DIFFERENT = 1
"""Exit code where a replay leaves its recording."""


def fidelity(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", show_default=False, help="Holds NAME.in.json and NAME.trace.json(.gz) files."),
    ],
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the comparison to this file too.")
    ] = None,
) -> None:
    """Replay recorded scheduler traces of a real engine; exit with 1 where any step differs.

    Record traces of your own engine version in the format of tests/golden/FORMAT.md, and see whether simserve decides
    what it decided.

    Example: simserve fidelity tests/golden
    """
    from simserve.validation.fidelity import print_fidelity, run_fidelity

    report = run_fidelity(folder, json)
    print_fidelity(report, results_console())
    if json is not None:
        say(f"wrote {json}")
    if not report.ok:
        raise typer.Exit(DIFFERENT)
