"""From a YAML file to a `Scenario`: base files merged, overrides applied, faults reported with file, line and key."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simserve.spec import resources
from simserve.spec.catalogue import is_path
from simserve.spec.complaints import describe
from simserve.spec.document import Document, parse_document, read_document
from simserve.spec.errors import ScenarioError
from simserve.spec.overlay import apply_override, merge
from simserve.spec.scenario import Scenario


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Scenario of a YAML file, with overrides such as `cluster.replicas=4` applied in order.

    Files that a scenario names are sought from its own folder, then among those that come with simserve.

    Raises:
        ScenarioError: the file, one of its bases or an override is not a valid scenario; one line per problem.
    """
    return build_scenario(_read_with_base(Path(path), ()), overrides)


def parse_scenario(text: str, overrides: Sequence[str] = (), origin: str = "<text>") -> Scenario:
    """Scenario of YAML text; files that it names are sought from the current folder.

    Raises:
        ScenarioError: as `load_scenario`.
    """
    return build_scenario(_with_base(parse_document(text, origin), Path.cwd(), ()), overrides)


def build_scenario(document: Document, overrides: Sequence[str] = ()) -> Scenario:
    """Scenario of merged data, which it remembers, so that later overrides resolve the defaults anew.

    Raises:
        ScenarioError: as `load_scenario`.
    """
    for override in overrides:
        document = apply_override(document, override)
    if overrides:
        document = _with_absolute_files(document, Path.cwd())
    try:
        scenario = Scenario.model_validate(document.data)
    except ValidationError as error:
        raise ScenarioError(describe(error, document)) from None
    scenario.remember(document)
    return scenario


def _read_with_base(path: Path, readers: tuple[Path, ...]) -> Document:
    if path.resolve() in readers:
        raise ScenarioError(f"{path}: is its own base, by way of {', '.join(str(reader) for reader in readers)}")
    return _with_base(read_document(path), path.parent, (*readers, path.resolve()))


def _with_base(document: Document, folder: Path, readers: tuple[Path, ...]) -> Document:
    place = document.place(("base",))
    if not isinstance(document.data, dict):
        raise ScenarioError(f"{place}: a scenario is a mapping with keys such as model, workload and cluster")
    document = _with_absolute_files(document, folder)
    base = document.data.pop("base", None)
    if base is None:
        return document
    path = _base_path(base, folder) if isinstance(base, str) else None
    if path is None:
        raise ScenarioError(f"{place}: base: expected the path of another scenario, got {base!r}, which is not a file")
    return merge(_read_with_base(path, readers), document)


def _base_path(base: str, folder: Path) -> Path | None:
    return folder / base if (folder / base).is_file() else resources.find("scenarios", base)


def _with_absolute_files(document: Document, folder: Path) -> Document:
    """The document with the files that it names sought from that folder, so that it may be merged and moved."""
    data = dict(document.data)
    if "workload" in data:
        data["workload"] = _absolute_data_files(data["workload"], folder)
    if "model" in data:
        data["model"] = _absolute_spec(data["model"], "config", folder)
    if isinstance(data.get("cluster"), dict) and "gpu" in data["cluster"]:
        data["cluster"] = data["cluster"] | {"gpu": _absolute_spec(data["cluster"]["gpu"], "base", folder)}
    return Document(data, document.places)


def _absolute_spec(value: Any, inner: str, folder: Path) -> Any:
    """A model or GPU with its path, if it is named by one, made absolute."""
    if isinstance(value, dict) and inner in value:
        return value | {inner: _absolute_spec(value[inner], inner, folder)}
    return str((folder / value).resolve()) if isinstance(value, str) and is_path(value) else value


def _absolute_data_files(value: Any, folder: Path) -> Any:
    """The workload with each `file:` in it made absolute."""
    if isinstance(value, list):
        return [_absolute_data_files(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _absolute_data_files(item, folder) for key, item in value.items()}
    return found | {"file": _absolute_data_file(found["file"], folder)} if isinstance(found.get("file"), str) else found


def _absolute_data_file(file: str, folder: Path) -> str:
    """Absolute path; a file among simserve's own keeps its name there, so that records do not depend on the machine."""
    path, own = (folder / file).resolve(), resources.folder("scenarios").resolve()
    if path.is_relative_to(own):
        return path.relative_to(own).as_posix()
    return file if not path.exists() and resources.find("scenarios", file) else str(path)
