"""`simserve gallery` and `schema`: what comes with simserve, and what a scenario may say."""

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from simserve.cli.arguments import Json, Name, known_path
from simserve.cli.console import fail, print_json, print_table, say


def gallery(
    name: Name = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy it, and the traces it reads, to this folder.")] = False,
    json: Json = False,
) -> None:
    """List the scenarios that come with simserve; print or copy one.

    Example: simserve gallery quickstart --copy
    """
    if name is None:
        if copy:
            fail("--copy needs the NAME of a scenario")
        _list_gallery(json)
        return
    path = known_path("scenarios", name, ".yaml")
    if copy:
        for file in [path, *_files_of(path)]:
            _copy(file, Path(file.relative_to(path.parent)))
    else:
        typer.echo(path.read_text(encoding="utf-8"), nl=False)


def _list_gallery(json: bool) -> None:
    from simserve.spec import resources

    about = {name: _about(known_path("scenarios", name, ".yaml")) for name in resources.names("scenarios")}
    if json:
        print_json(about)
        return
    note = "simserve run NAME runs one; simserve gallery NAME --copy brings it here to be changed"
    print_table("", ["scenario", "what it asks"], about.items(), note)


def _about(path: Path) -> str:
    """What a scenario says of itself, on one line."""
    content = _read_yaml(path)
    return " ".join(str(content.get("description") or content.get("name", "")).split())


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _files_of(path: Path) -> list[Path]:
    """Files that a scenario reads beside itself: its base (and that one's), its trace and empirical lengths."""
    pending: list[Any] = [_read_yaml(path)]
    files: list[Path] = []
    while pending:
        node = pending.pop()
        if isinstance(node, str) and (file := path.parent / node).is_file() and file not in files:
            files.append(file)
            if file.suffix == ".yaml":
                pending.append(_read_yaml(file))
        elif isinstance(node, dict | list):
            pending += node.values() if isinstance(node, dict) else node
    return files


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        say(f"kept {target}, which was here already")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    say(f"copied {target}")


def schema() -> None:
    """Print the JSON schema of a scenario, for editors and for reading."""
    from simserve.spec import schema as spec

    print_json(spec.schema())
