"""From a YAML file to a `Scenario`: base files merged, overrides applied, every fault reported with its file, key path and line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simserve.spec import resources
from simserve.spec.complaints import describe
from simserve.spec.document import Document, Key, KeyPath, Place, parse_document, read_document
from simserve.spec.errors import ScenarioError
from simserve.spec.scenario import Scenario

_TAGS = ("process", "distribution")
"""Keys that decide what the others of a mapping mean: where a tag changes, the whole mapping is replaced."""

_SHORTHANDS = {("model",): "config", ("cluster", "gpu"): "base"}
"""Places where a bare name stands for a mapping with that name under this key."""


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Scenario of a YAML file, with overrides such as `cluster.replicas=4` applied in order.

    Raises:
        ScenarioError: the file, one of its bases or an override is not a valid scenario; the message names each place and remedy.
    """
    document = _read_with_base(Path(path), ())
    return build_scenario(document, overrides)


def parse_scenario(text: str, overrides: Sequence[str] = (), origin: str = "<text>") -> Scenario:
    """Scenario of YAML text; files that it names are sought from the current folder.

    Raises:
        ScenarioError: as `load_scenario`.
    """
    document = _with_base(parse_document(text, origin), Path.cwd(), ())
    return build_scenario(document, overrides)


def build_scenario(document: Document, overrides: Iterable[str] = ()) -> Scenario:
    """Scenario of merged data; keeps the data, so that later overrides resolve defaults anew.

    Raises:
        ScenarioError: as `load_scenario`.
    """
    for override in overrides:
        document = _apply_override(document, override)
    try:
        scenario = Scenario.model_validate(document.data)
    except ValidationError as error:
        raise ScenarioError(describe(error, document)) from None
    scenario.remember(document)
    return scenario


def _read_with_base(path: Path, seen: tuple[Path, ...]) -> Document:
    if path.resolve() in seen:
        raise ScenarioError(f"{path}: is its own base, by way of {' -> '.join(str(p) for p in seen)}")
    return _with_base(read_document(path), path.parent, (*seen, path.resolve()))


def _with_base(document: Document, folder: Path, seen: tuple[Path, ...]) -> Document:
    if not isinstance(document.data, dict):
        raise ScenarioError(
            f"{document.place(())}: a scenario is a mapping with keys such as model, workload and cluster"
        )
    document = _absolute_files(document, folder)
    base = document.data.pop("base", None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise ScenarioError(f"{document.place(('base',))}: base: expected the path of another scenario, got {base!r}")
    path = _sought(base, folder, "scenarios")
    if path is None:
        raise ScenarioError(
            f"{document.place(('base',))}: base: no file {base!r} in {folder} nor among simserve's scenarios"
        )
    return merge(_read_with_base(path, seen), document)


def _sought(name: str, folder: Path, kind: resources.Kind) -> Path | None:
    return folder / name if (folder / name).exists() else resources.find(kind, name)


def _absolute_files(document: Document, folder: Path) -> Document:
    """The document with the files it names made independent of where it lies."""
    data = document.data
    if isinstance(data.get("workload"), dict):
        data["workload"] = _absolute_data_files(data["workload"], folder)
    cluster = data.get("cluster")
    for holder, key, inner in ((data, "model", "config"), (cluster, "gpu", "base")):
        if isinstance(holder, dict) and key in holder:
            if isinstance(holder[key], dict) and inner in holder[key]:
                holder, key = holder[key], inner
            holder[key] = _absolute_spec(holder[key], folder)
    return document


def _absolute_spec(value: Any, folder: Path) -> Any:
    looks_like_path = isinstance(value, str) and ("/" in value or value.endswith((".json", ".yaml", ".yml")))
    return str((folder / value).resolve()) if looks_like_path else value


def _absolute_data_files(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_absolute_data_files(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _absolute_data_file(item, folder)
        if key == "file" and isinstance(item, str)
        else _absolute_data_files(item, folder)
        for key, item in value.items()
    }


def _absolute_data_file(file: str, folder: Path) -> str:
    """Absolute path; a file of simserve's own scenarios keeps its name there, so that records do not depend on the machine."""
    path = (folder / file).resolve()
    own = resources.folder("scenarios").resolve()
    if path.exists():
        return path.relative_to(own).as_posix() if path.is_relative_to(own) else str(path)
    return file if resources.find("scenarios", file) else str(path)


def merge(base: Document, change: Document) -> Document:
    """Deep merge: mappings key by key, everything else replaced by the change."""
    places = dict(base.places)
    data = _merged(base.data, change.data, (), places, change.places)
    return Document(data, places)


def _merged(base: Any, change: Any, path: KeyPath, places: dict[KeyPath, Place], new: Mapping[KeyPath, Place]) -> Any:
    base = _spelled_out(base, change, path)
    if isinstance(base, dict) and isinstance(change, dict) and not _changes_tag(base, change):
        merged = dict(base)
        for key, value in change.items():
            merged[key] = _merged(base.get(key), value, (*path, key), places, new)
        places[path] = new.get(path, places.get(path, Place("<scenario>")))
        return merged
    for old in [p for p in places if p[: len(path)] == path]:
        del places[old]
    places.update({p: place for p, place in new.items() if p[: len(path)] == path})
    return change


def _spelled_out(base: Any, change: Any, path: KeyPath) -> Any:
    """A bare model or GPU name as the mapping it stands for, where the change adds keys to it."""
    inner = _SHORTHANDS.get(path)  # type: ignore[call-overload]
    return (
        {inner: base} if inner and isinstance(base, str) and isinstance(change, dict) and inner not in change else base
    )


def _changes_tag(base: Mapping[Key, Any], change: Mapping[Key, Any]) -> bool:
    return any(tag in base and tag in change and base[tag] != change[tag] for tag in _TAGS)


def _apply_override(document: Document, override: str) -> Document:
    place = Place(f"override {override!r}")
    name, equals, text = override.partition("=")
    keys = [int(key) if key.isdigit() else key for key in name.strip().split(".")]
    if not equals or "" in keys:
        raise ScenarioError(f"{place}: an override reads key.path=value, for example cluster.replicas=4")
    value = parse_document(text, str(place), line=None).data
    data = _assigned(document.data, keys, value, (), place)
    data = _absolute_files(Document(data), Path.cwd()).data
    path = tuple(keys)
    places = {p: q for p, q in document.places.items() if p[: len(path)] != path} | {path: place}
    return replace(document, data=data, places=places)


def _assigned(data: Any, keys: Sequence[Key], value: Any, path: KeyPath, place: Place) -> Any:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    data = _spelled_out(data, {key: None}, path)
    if isinstance(data, list):
        if not isinstance(key, int) or key >= len(data):
            raise ScenarioError(
                f"{place}: {'.'.join(map(str, path))} is a list of {len(data)}: expected a number below that, got {key!r}"
            )
        return [_assigned(item, rest, value, (*path, key), place) if i == key else item for i, item in enumerate(data)]
    if data is not None and not isinstance(data, dict):
        raise ScenarioError(f"{place}: {'.'.join(map(str, path))} is {data!r}, it has no key {key!r}")
    return {**(data or {}), key: _assigned((data or {}).get(key), rest, value, (*path, key), place)}
