"""Validation errors in the words of a scenario's author: where it stands, what was expected, what was found."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from simserve.spec.document import Document, KeyPath
from simserve.spec.quantities import shown
from simserve.spec.strict import nearest

_COMPARISONS = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
}


def describe(error: ValidationError, document: Document) -> str:
    """One line per problem: `file:line: key.path: what is wrong, and the remedy`."""
    lines = [line for details in error.errors(include_url=False) for line in _lines(details, document)]
    return "\n".join(dict.fromkeys(lines))


def _lines(details: ErrorDetails, document: Document) -> list[str]:
    context = details.get("ctx", {})
    path = _key_path(details, document.data)
    if details["type"] == "skipped":
        return []
    if details["type"] == "not_deployable":
        return [_placed(tuple(key.split(".")), message, document) for key, message in context["problems"]]
    if "key" in context:
        path = (*path, context["key"])
    return [_placed(path, _message(details), document)]


def _placed(path: KeyPath, message: str, document: Document) -> str:
    where = ".".join(str(key) for key in path)
    return f"{document.place(path)}: {where}: {message}" if where else f"{document.place(path)}: {message}"


def _key_path(details: ErrorDetails, data: Any) -> KeyPath:
    """The error's location without the steps that pydantic adds inside unions."""
    path: list[str | int] = []
    location = _written(details, data)
    for index, step in enumerate(location):
        inside = (isinstance(data, Mapping) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and step < len(data)
        )
        if inside:
            data = data[step]
            path.append(step)
        elif index == len(location) - 1 and details["type"] == "missing":
            path.append(step)
    return tuple(path)


def _written(details: ErrorDetails, data: Any) -> tuple[str | int, ...]:
    """Where a value was written: a pool takes over what it does not state of its engine from `engine`."""
    match details["loc"]:
        case ("cluster", "pools", pool, "engine", *rest):
            key = rest[0] if rest else details.get("ctx", {}).get("key")
            own = data["cluster"]["pools"][pool]
            stated = own.get("engine") if isinstance(own, Mapping) else None
            if stated is None or (isinstance(stated, Mapping) and key not in stated):
                return ("engine", *rest)
    return details["loc"]


def _message(details: ErrorDetails) -> str:  # noqa: PLR0911
    kind, context, found = details["type"], details.get("ctx", {}), details.get("input")
    if kind == "missing":
        return "is needed and not given"
    if kind in _COMPARISONS:
        return f"must be {_COMPARISONS[kind].format(**context)}, got {shown(found)}"
    if kind == "literal_error":
        return _choice(str(context["expected"]), found)
    if kind == "union_tag_invalid":
        tag = str(context["discriminator"]).strip("'")
        return f"{tag}: {_choice(str(context['expected_tags']), context['tag'])}"
    if kind == "union_tag_not_found":
        return f"needs the key {context['discriminator']} that says which kind it is, got {shown(found)}"
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        return f"expected a mapping (key: value), got {shown(found)}"
    if kind in {"tuple_type", "list_type"}:
        return f"expected a list, got {shown(found)}"
    if kind.startswith("bool"):
        return f"expected true or false, got {shown(found)}"
    if kind == "string_type":
        return f"expected text, got {shown(found)}"
    if kind == "too_short":
        return "must not be empty"
    return details["msg"]


def _choice(expected: str, found: object) -> str:
    known = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    near = nearest(found, known) if isinstance(found, str) else None
    listed = f"expected one of {', '.join(known)}, got {shown(found)}"
    return f"{listed}; did you mean {near!r}?" if near else listed
