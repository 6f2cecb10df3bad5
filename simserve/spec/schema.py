"""The JSON schema of a scenario file, for editors (`# yaml-language-server: $schema=...`) and for `simserve schema`."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from simserve.spec.dtypes import DTYPES
from simserve.spec.scenario import Scenario
from simserve.spec.strict import Strict
from simserve.spec.uniform import KEYS

_RESOLVED = ("EngineSpec", "CudaGraphSpec", "CostSpec", "HostSpec", "PoolSpec")
"""Sections whose missing and null values are filled from model and GPU."""

_CHANGEABLE = ("ModelSpec", "GpuSpec", "EfficiencySpec", "InterconnectSpec", "LaunchSpec")
"""Specifications that a scenario names, and of which it may state just what differs."""


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of what a user may write in a scenario file; unknown keys are not in it."""
    document = Scenario.model_json_schema(by_alias=True)
    definitions = document["$defs"]
    for name in (*_RESOLVED, *_CHANGEABLE):
        definitions[name].pop("required", None)
    for name in _RESOLVED:
        properties = definitions[name]["properties"]
        definitions[name]["properties"] = {key: _or_null(value) for key, value in properties.items()}
    for section in Strict.__subclasses__():
        if section.__name__ in definitions:
            _describe(definitions[section.__name__]["properties"], section)
    _describe_model(definitions["ModelSpec"])
    definitions["GpuSpec"]["properties"]["base"] = {"type": "string", "description": "name or path of a profile"}
    properties = definitions["SpeculativeSpec"]["properties"]
    properties["draft_model"] = _or_text(
        "draft model: its name, or the path of a config.json", properties["draft_model"]
    )
    properties["acceptance"] = {"anyOf": [{"type": ["number", "string"]}, properties["acceptance"]]}
    properties = definitions["ClusterSpec"]["properties"]
    properties["gpu"] = _or_text("GPU profile: its name or path", properties["gpu"])
    # A scenario with a base may leave anything out.
    document.pop("required")
    properties = document["properties"]
    properties["model"] = _or_text("model: its name, or the path of a config.json", properties["model"])
    properties["base"] = {"type": "string", "description": "scenario file that this one changes"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "simserve scenario", **document}


def _describe_model(model: dict[str, Any]) -> None:
    """What stands for `layers`, and what may stand beside a configuration: any key that it lacks, too."""
    properties = model["properties"]
    properties["config"] = _or_text("path of a config.json, a name or an id, or its content", {"type": "object"})
    properties["assume"] = {"type": "string", "description": "family that the configuration is read as"}
    properties["ignore"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "keys of the configuration that change nothing",
    }
    for key in sorted(KEYS):
        properties[key] = {"description": "where all layers are alike: in place of layers"}
    properties["weight_dtype"] = {"type": "string", "enum": list(DTYPES), "description": "format of the weights"}
    model["additionalProperties"] = True


def _or_text(description: str, other: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "string", "description": description}, other]}


def _or_null(value: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [value, {"type": "null"}]}


def _describe(properties: dict[str, Any], section: type[Strict]) -> None:
    """Put the text under each field of the source into the schema."""
    aliases = {name: field.alias or name for name, field in section.model_fields.items()}
    for name, text in _field_texts(section):
        properties[aliases[name]]["description"] = text


def _field_texts(section: type[Strict]) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, inspect.cleandoc(words)
