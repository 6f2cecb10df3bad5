"""The verbs of `simserve`. Each file holds a group of them; nothing heavy is imported before a verb needs it."""

from collections.abc import Callable
from typing import Annotated

import typer

from simserve.cli import (
    calibrate,
    capacity,
    catalogue,
    fidelity,
    memory,
    models,
    profiles,
    run,
    step,
    sweep,
    trace,
    validate,
)
from simserve.cli.console import guarded

app = typer.Typer(
    name="simserve",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ASK = "Ask a question"
PLAN = "Plan a fleet"
LOOK = "Look things up"
TRUST = "Check it"

VERBS: dict[str, list[Callable[..., None]]] = {
    ASK: [run.run, run.report, step.step, memory.memory],
    PLAN: [sweep.sweep, capacity.capacity],
    LOOK: [catalogue.gallery, models.models, catalogue.schema],
    TRUST: [fidelity.fidelity, validate.fit_server, calibrate.calibrate],
}
for panel, verbs in VERBS.items():
    for verb in verbs:
        app.command(rich_help_panel=panel)(guarded(verb))
validate.validate.command()(guarded(calibrate.live))
app.add_typer(profiles.profiles, name="profiles", rich_help_panel=LOOK)
app.add_typer(trace.trace, name="trace", rich_help_panel=LOOK)
app.add_typer(validate.validate, name="validate", rich_help_panel=TRUST)


def _print_version(wanted: bool) -> None:
    if wanted:
        from simserve import __version__
        from simserve.engine import is_compiled

        typer.echo(f"simserve {__version__}{' (compiled)' if is_compiled() else ''}")
        raise typer.Exit


@app.callback()
def simserve(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Simulate LLM serving from one YAML file: TTFT, TPOT, throughput and price before you rent a GPU.

    Start with `simserve run quickstart`; `simserve gallery` lists more questions to ask.

    Results go to stdout, all else to stderr. Exit codes: 0 done, 2 a bad scenario or command, 3 SLO missed.
    """


def main() -> None:
    """Entry point of the `simserve` command."""
    app()
