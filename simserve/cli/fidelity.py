"""`simserve fidelity`: the scheduler replayed against what a real engine recorded."""

from pathlib import Path
from typing import Annotated

import typer


def fidelity(
    folder: Annotated[Path, typer.Argument(help="Folder of NAME.in.json and NAME.trace.json(.gz) files.")],
    json: Annotated[Path | None, typer.Option("--json", help="Write the comparison to this file.")] = None,
) -> None:
    """Replay recorded engine traces; exit with 1 at the first step that differs."""
    raise NotImplementedError
