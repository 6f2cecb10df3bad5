"""Arguments that several verbs share, and the scenario they lead to."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simserve.cli.console import fail

if TYPE_CHECKING:
    from simserve.spec import resources
    from simserve.spec.scenario import Scenario

ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", show_default=False, help="YAML file, or a name from `simserve gallery`.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", show_default=False, help="Scenario keys to set, e.g. cluster.replicas=2."),
]
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", show_default=False, help="One of the list.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier call wrote there.")]
ChatTemplateTokens = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Tokens that the server adds to each prompt that the client counted."),
]
Seeds = Annotated[
    int, typer.Option(min=1, metavar="N", help="Runs with different seeds, counted from the scenario's own.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", show_default="one per core", help="Processes to run in.")
]


def scenario_path(name: str) -> Path:
    """The file of that name, or the scenario of the gallery."""
    path = Path(name)
    if path.exists() or path.suffix:
        return path
    return known_path("scenarios", name, ".yaml")


def known_path(kind: "resources.Kind", name: str, suffix: str = "") -> Path:
    """Path of a scenario that comes with simserve; the message of a miss suggests the nearest."""
    from simserve.spec import resources
    from simserve.spec.strict import nearest

    path = resources.find(kind, name.removesuffix(suffix) + suffix)
    if path is None:
        known = list(resources.names(kind))
        near = nearest(name, known) or next((one for one in known if name in one), None)
        remedy = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"
        fail(f"{name!r}: no such scenario, neither a file nor in the gallery; {remedy}")
    return path


def load(name: str, overrides: Sequence[str] | None = None) -> "Scenario":
    """Scenario of a file or of the gallery, with keys overridden."""
    from simserve.spec.load import load_scenario

    return load_scenario(scenario_path(name), overrides or ())
