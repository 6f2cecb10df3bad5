"""How the command line speaks: results on stdout, all else on stderr, no traceback for a user's mistake.

rich is loaded only where a table or a progress bar is drawn; a short run draws neither.
"""

import functools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

BAD_SCENARIO = 2
SLO_MISSED = 3
NOTHING_SUCCEEDED = 4
INTERRUPTED = 130
PATIENCE = 0.5
"""Seconds that a single run may take before a progress bar appears."""
WIDE = 180
"""Columns of a table that does not go to a terminal: enough that nothing is cut."""

P = ParamSpec("P")
T = TypeVar("T")


def guarded(verb: Callable[P, T]) -> Callable[P, T]:
    """The verb, with a user's mistakes and Ctrl-C turned into one message on stderr and an exit code."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        from simserve.spec.errors import ScenarioError

        try:
            return verb(*args, **kwargs)
        except ScenarioError as error:
            fail(str(error))
        except FileExistsError as error:
            fail(f"{error}; --force replaces it, another -o keeps it")
        except OSError as error:
            if error.filename is None:
                raise
            fail(f"{error.filename}: {(error.strerror or 'cannot be used').lower()}")
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return run


def say(text: str) -> None:
    """A line for the person at the keyboard: stderr."""
    typer.echo(text, err=True)


def fail(text: str, code: int = BAD_SCENARIO) -> NoReturn:
    """Say what is wrong and end the command."""
    typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    say(text)
    raise typer.Exit(code)


def print_json(value: object) -> None:
    """A result as JSON on stdout."""
    typer.echo(json.dumps(value, indent=2))


def print_notes(notes: Iterable[str]) -> None:
    """What a reader must know beside a result, on stdout below it."""
    for note in notes:
        typer.echo(f"Note: {note}")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
    """A result as a table on stdout: words to the left, numbers to the right."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, caption=escape(note) or None, caption_justify="left"
    )
    cells = [*rows]
    for index, column in enumerate(columns):
        numbers = index > 0 and all(row[index][:1] in "0123456789-" for row in cells)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    results_console().print(table)


def results_console() -> "Console":
    """stdout for rich: as wide as the terminal, or wide enough for anything."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)


@contextmanager
def progress_bar(text: str, total: float = 1.0, patience: float = PATIENCE) -> Iterator[Callable[[float], None]]:
    """Function that takes how much is done; on a terminal a bar appears at the first call after `patience` seconds."""
    started = time.perf_counter()
    bar: Progress | None = None
    task: TaskID | None = None

    def update(done: float) -> None:
        nonlocal bar, task
        if bar is None and time.perf_counter() - started >= patience:
            bar, task = _open_bar(text, total)
        if bar is not None and task is not None:
            bar.update(task, completed=done)

    shown = sys.stderr.isatty()
    if shown and patience == 0:
        update(0)
    try:
        yield update if shown else lambda _: None
    finally:
        if bar is not None:
            bar.stop()


def _open_bar(text: str, total: float) -> "tuple[Progress, TaskID]":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    times = [TimeElapsedColumn(), TextColumn("to go"), TimeRemainingColumn()]
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *times]
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=total)
    bar.start()
    return bar, task
