"""`simserve models`: the catalogue, or what simserve reads from a model's configuration."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simserve.cli.arguments import Json
from simserve.cli.console import fail, print_json, print_table

if TYPE_CHECKING:
    from simserve.report.model_facts import Facts

COLUMNS = ("model", "parameters", "active", "weights", "in", "KV per token", "longest context", "simulated")


def models(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|NAME|ID]",
            show_default=False,
            help="A config.json or its folder, a folder of such files, a catalogue name or Hugging Face id.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the models of the catalogue, or show what is read from a model's configuration and what is not.

    Ends with code 2 and one reason where a configuration is refused.

    Example: simserve models ./config.json
    """
    if model is None:
        _show_catalogue(json)
    elif Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        _show_folder(Path(model), json)
    else:
        _show_model(model, json)


def _show_catalogue(json: bool) -> None:
    from simserve.report.model_facts import model_facts
    from simserve.spec.catalogue import catalogue

    facts = [model_facts(each) for each in catalogue()]
    if json:
        print_json(facts)
    else:
        print_table("", COLUMNS, map(_row, facts), "any other model: model: path/to/config.json")


def _show_folder(folder: Path, json: bool) -> None:
    """Every configuration of a folder; one that is refused is a row with its reason."""
    from simserve.report.model_facts import model_facts
    from simserve.spec.catalogue import read_model
    from simserve.spec.errors import ScenarioError

    files = [file for file in sorted(folder.glob("*.json")) if not file.name.endswith("hf_quant_config.json")]
    if not files:
        fail(f"{folder}: no config.json in it, and no other .json file")
    rows: list[Facts] = []
    for file in files:
        try:
            rows.append({"file": file.name} | model_facts(read_model(file)))
        except ScenarioError as error:
            rows.append({"file": file.name, "name": file.stem, "refused": str(error)})
    if json:
        print_json(rows)
        return
    print_table("", COLUMNS, map(_row, rows))
    _say_notes(rows)


def _say_notes(rows: Iterable["Facts"]) -> None:
    for row in rows:
        notes = [f"refused: {row['refused']}"] if "refused" in row else _notes(row)
        for note in notes:
            typer.echo(f"{row['name']}: {note}")


def _show_model(name: str, json: bool) -> None:
    from simserve.report.model_facts import model_facts
    from simserve.spec.catalogue import named_model

    facts = model_facts(named_model(name))
    if json:
        print_json(facts)
        return
    print_table(facts["name"], ["", ""], list(_lines(facts)))
    for note in _notes(facts):
        typer.echo(note)


def _lines(facts: "Facts") -> Iterator[tuple[str, str]]:
    """What is known of one model, a line each."""
    for name, key in (("parameters", "num_parameters"), ("active for a token", "num_active_parameters")):
        yield name, f"{facts[key]:,} ({_billions(facts[key])})"
    for tower, size in facts["towers"].items():
        yield f"of these in the {tower}", f"{size:,}"
    yield (
        "weights",
        f"{facts['weight_bytes']:,.0f} bytes ({_gigabytes(facts['weight_bytes'])}), {facts['weight_dtype']}",
    )
    yield "KV cache per token", f"{facts['kv_bytes_per_token']:,.0f} bytes ({facts['kv_dtype']})"
    for each in facts["windows"]:
        bytes_per_token = f"{each['bytes_per_token']:,.0f} bytes a token"
        yield f"{each['layers']} window layers", f"{bytes_per_token}, for the last {each['window']:,}"
    for name, key in (
        ("state per sequence", "state_bytes_per_sequence"),
        ("index per token", "index_cache_bytes_per_token"),
    ):
        if facts[key]:
            yield name, f"{facts[key]:,.0f} bytes"
    yield "longest context", f"{facts['max_model_len']:,} tokens"
    for kind, count in facts["layers"].items():
        yield kind, f"{count} layers"
    if facts["drafting_layers"]:
        yield "drafting layers", f"{facts['drafting_layers']}, held where engine.speculative uses them"
    yield "simulated", "yes" if facts["simulated"] is True else f"no: {facts['simulated']}"


def _notes(facts: "Facts") -> list[str]:
    """What a reader must know beside the numbers."""
    notes = [] if facts["simulated"] is True else [f"not simulated: {facts['simulated']}"]
    return [*notes, *(f"left out: {each}" for each in facts["left_out"]), *(f"warning: {w}" for w in facts["warnings"])]


def _row(facts: "Facts") -> Sequence[str]:
    if "refused" in facts:
        return [facts["name"], *["-"] * (len(COLUMNS) - 2), "refused"]
    return [
        facts["name"],
        _billions(facts["num_parameters"]),
        _billions(facts["num_active_parameters"]),
        _gigabytes(facts["weight_bytes"]),
        facts["weight_dtype"],
        f"{facts['kv_bytes_per_token'] / 1024:.1f} KiB",
        f"{facts['max_model_len']:,}",
        "yes" if facts["simulated"] is True else "no",
    ]


def _billions(count: Any) -> str:
    return f"{count / 1e9:.2f} B"


def _gigabytes(size: Any) -> str:
    return f"{size / 1e9:.1f} GB"
