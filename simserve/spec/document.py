"""YAML text with the place of every value, so that an error can name the line that a person has to change.

Stricter than PyYAML: duplicate keys are an error, and scalars follow YAML 1.2, where `1e-6` is a number, while `off`,
`1:30` and `010` are not a flag, 90 and 8.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simserve.spec.errors import ScenarioError

Key = str | int
KeyPath = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written: a file and line, or an override."""

    origin: str
    line: int | None = None

    def __str__(self) -> str:
        return self.origin if self.line is None else f"{self.origin}:{self.line}"


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (mappings, lists, scalars) and the place of each of its values."""

    data: Any
    places: dict[KeyPath, Place] = field(default_factory=dict)

    def place(self, path: KeyPath) -> Place:
        """Place of the value at a path, or of the nearest value around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place("<scenario>"))

    def at(self, path: KeyPath) -> Any:
        """Value at a path that exists."""
        data = self.data
        for key in path:
            data = data[key]
        return data


_MERGE = "tag:yaml.org,2002:merge"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe loader with the scalars of YAML 1.2's core schema."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][\d_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.\d+|\d[\d_]*(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first))


def read_document(path: Path) -> Document:
    """Parsed YAML file.

    Raises:
        ScenarioError: the file cannot be read, is not YAML, or repeats a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: is not UTF-8 text") from None
    return parse_document(text, str(path))


def parse_document(text: str, origin: str, with_lines: bool = True) -> Document:
    """Parsed YAML text; `origin` names it in errors, with line numbers or (the value of an override) without.

    Raises:
        ScenarioError: not YAML, or a repeated key; the message names the line.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        places: dict[KeyPath, Place] = {}
        data = None if node is None else _Builder(loader, origin, with_lines, places).build(node, ())
    except yaml.YAMLError as error:
        raise ScenarioError(_yaml_problem(error, text, origin, with_lines)) from None
    finally:
        loader.dispose()
    return Document(data, places or {(): Place(origin)})


def _yaml_problem(error: yaml.YAMLError, text: str, origin: str, with_lines: bool) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{origin}: not valid YAML: {error}"
    line = error.problem_mark.line
    hint = " (YAML indents with spaces, not tabs)" if "\t" in "".join(text.splitlines()[line : line + 1]) else ""
    return f"{Place(origin, line + 1 if with_lines else None)}: not valid YAML: {error.problem}{hint}"


class _Builder:
    """Turns YAML nodes into data and notes their places."""

    def __init__(self, loader: Any, origin: str, lines: bool, places: dict[KeyPath, Place]) -> None:
        self.loader, self.origin, self.lines, self.places = loader, origin, lines, places
        self.open: set[int] = set()

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.places.setdefault(path, self._place(node))
        if isinstance(node, yaml.ScalarNode):
            return self.loader.construct_object(node)
        if id(node) in self.open:
            raise ScenarioError(f"{self._place(node)}: an anchor refers to itself")
        self.open.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            built: Any = [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        else:
            built = dict(self._items(node, path))
        self.open.discard(id(node))
        return built

    def _items(self, node: yaml.Node, path: KeyPath) -> Iterator[tuple[Key, Any]]:
        self._refuse_duplicates(node)
        self.loader.flatten_mapping(node)
        for key_node, value_node in node.value:
            key = self._key(key_node)
            self.places[(*path, key)] = self._place(key_node)
            yield key, self.build(value_node, (*path, key))

    def _refuse_duplicates(self, node: yaml.Node) -> None:
        seen: dict[Key, Place] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self._key(key_node)
            if key in seen:
                raise ScenarioError(f"{self._place(key_node)}: duplicate key {key!r}, already given at {seen[key]}")
            seen[key] = self._place(key_node)

    def _key(self, node: yaml.Node) -> Key:
        key = self.loader.construct_object(node) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise ScenarioError(f"{self._place(node)}: a key must be a word or a whole number")
        return key

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.origin, node.start_mark.line + 1 if self.lines else None)
