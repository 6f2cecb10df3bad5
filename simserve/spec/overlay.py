"""One document laid over another: a scenario over its base, an override over a scenario. Each value keeps its place."""

from collections.abc import Mapping, Sequence
from typing import Any

from simserve.spec.document import Document, Key, KeyPath, Place, parse_document
from simserve.spec.errors import ScenarioError

_TAGS = ("process", "distribution")
"""Keys that decide what the others of a mapping mean: where one changes, the whole mapping is replaced."""

_SHORTHANDS: dict[KeyPath, str] = {("model",): "config", ("cluster", "gpu"): "base"}
"""Places where a bare name stands for a mapping with that name under this key."""


def merge(base: Document, change: Document) -> Document:
    """Deep merge: mappings key by key, everything else (lists too) replaced by the change."""
    places = dict(base.places)
    return Document(_merged(base.data, change, (), places), places)


def _merged(base: Any, change: Document, path: KeyPath, places: dict[KeyPath, Place]) -> Any:
    new = change.at(path)
    base = _spelled_out(base, new, path)
    if isinstance(base, dict) and isinstance(new, dict) and not _changes_tag(base, new):
        return base | {key: _merged(base.get(key), change, (*path, key), places) for key in new}
    _forget(path, places)
    places.update({p: place for p, place in change.places.items() if p[: len(path)] == path})
    return new


def _spelled_out(base: Any, change: Any, path: KeyPath) -> Any:
    """A bare model or GPU name as the mapping it stands for, where the change adds keys to it."""
    inner = _SHORTHANDS.get(path)
    adds_keys = isinstance(base, str) and isinstance(change, dict) and inner not in change
    return {inner: base} if inner and adds_keys else base


def _changes_tag(base: Mapping[Key, Any], change: Mapping[Key, Any]) -> bool:
    return any(tag in base and tag in change and base[tag] != change[tag] for tag in _TAGS)


def _forget(path: KeyPath, places: dict[KeyPath, Place]) -> None:
    for old in [p for p in places if p[: len(path)] == path]:
        del places[old]


def apply_override(document: Document, override: str) -> Document:
    """The document with `a.b.c=value` assigned; the value is YAML and replaces what was there.

    Raises:
        ScenarioError: not of that form, or the path leads through something that has no keys.
    """
    place = Place(f"override {override!r}")
    name, equals, text = override.partition("=")
    path = tuple(int(key) if key.isdigit() else key for key in name.strip().split("."))
    if not equals or "" in path:
        raise ScenarioError(f"{place}: an override reads key.path=value, for example cluster.replicas=4")
    value = parse_document(text, str(place), with_lines=False).data
    places = dict(document.places)
    _forget(path, places)
    for end in range(1, len(path) + 1):
        places.setdefault(path[:end], place)
    return Document(_assigned(document.data, path, 0, value, place), places)


def _assigned(data: Any, path: KeyPath, depth: int, value: Any, place: Place) -> Any:
    if depth == len(path):
        return value
    key = path[depth]
    data = _spelled_out(data, {key: value}, path[:depth])
    if data is None:
        data = {}
    if isinstance(data, list) and isinstance(key, int) and key < len(data):
        items = range(len(data))
        return [_assigned(data[i], path, depth + 1, value, place) if i == key else data[i] for i in items]
    if not isinstance(data, dict):
        raise ScenarioError(f"{place}: {_dotted(path[:depth])} is {data!r}, which has no {key!r}")
    return {**data, key: _assigned(data.get(key), path, depth + 1, value, place)}


def _dotted(path: Sequence[Key]) -> str:
    return ".".join(str(key) for key in path)
