"""Models and GPUs by name: the catalogue that comes with simserve, and the files of a user."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simserve.spec import resources
from simserve.spec.complaints import describe
from simserve.spec.document import read_document
from simserve.spec.errors import ScenarioError
from simserve.spec.hardware import GpuSpec
from simserve.spec.hf_config import model_from_config
from simserve.spec.model import ModelSpec
from simserve.spec.strict import nearest


@cache
def find_model(name: str) -> ModelSpec:
    """Model of the catalogue.

    Raises:
        ScenarioError: no such name; the message suggests the nearest.
    """
    path = resources.find("models", f"{name}.json")
    if path is None:
        known = list(resources.names("models"))
        near = nearest(name, known)
        remedy = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}, or the path of a config.json"
        raise ScenarioError(f"unknown model {name!r}, {remedy}")
    return read_model(path, name)


def read_model(path: Path, name: str | None = None) -> ModelSpec:
    """Model of a Hugging Face `config.json`; its name is the folder's where the file is called just `config.json`.

    Raises:
        ScenarioError: the file cannot be read or describes a model that is not modelled.
    """
    return model_from_config(_read_json(path), name or (path.parent.name if path.stem == "config" else path.stem))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: cannot be read as a config.json: {error}") from None
    if not isinstance(config, dict):
        raise ScenarioError(f"{path}: a config.json holds one object, this one holds a {type(config).__name__}")
    return config


def catalogue() -> list[ModelSpec]:
    """All models that come with simserve, by name."""
    return [find_model(name) for name in resources.names("models")]


def resolve_model(value: Any) -> Any:
    """Fields of the model that `model:` of a scenario names.

    A catalogue name, the path of a config.json, or a mapping: `config` (name, path or the configuration itself) with fields to override,
    or all fields of `ModelSpec`.

    Raises:
        ScenarioError: no such model or file, or one that is not modelled.
    """
    if isinstance(value, ModelSpec) or not isinstance(value, str | Mapping):
        return value
    if isinstance(value, str):
        return _named_model(value)
    if "config" not in value:
        return value
    config = value["config"]
    model = (
        model_from_config(config, str(value.get("name", "model")))
        if isinstance(config, Mapping)
        else _named_model(str(config))
    )
    return {
        **model.model_dump(by_alias=True),
        **{key: item for key, item in value.items() if key != "config" and item is not None},
    }


def _named_model(name: str) -> ModelSpec:
    return read_model(Path(name)) if _is_path(name) else find_model(name)


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith((".json", ".yaml", ".yml"))


@cache
def find_gpu(name: str) -> GpuSpec:
    """Profile that comes with simserve.

    Raises:
        ScenarioError: no such name; the message suggests the nearest.
    """
    path = resources.find("hardware_profiles", f"{name}/profile.yaml")
    if path is None:
        known = list(resources.names("hardware_profiles"))
        near = nearest(name, known)
        remedy = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}, or the path of a profile.yaml"
        raise ScenarioError(f"unknown GPU {name!r}, {remedy}")
    return read_gpu(path)


def read_gpu(path: Path) -> GpuSpec:
    """Profile of a YAML file, or of the `profile.yaml` in a folder.

    Raises:
        ScenarioError: the file cannot be read or is not a profile.
    """
    document = read_document(path / "profile.yaml" if path.is_dir() else path)
    try:
        return GpuSpec.model_validate(document.data)
    except ValidationError as error:
        raise ScenarioError(describe(error, document)) from None


def resolve_gpu(value: Any) -> Any:
    """Fields of the GPU that `cluster.gpu` names: a profile's name, a path, or a mapping with `base` and what differs from it.

    Raises:
        ScenarioError: no such profile, or a file that is not one.
    """
    if isinstance(value, str):
        return read_gpu(Path(value)) if _is_path(value) else find_gpu(value)
    if isinstance(value, Mapping) and "base" in value:
        base = resolve_gpu(value["base"])
        changes = {key: item for key, item in value.items() if key != "base"}
        return _deep(base.model_dump(by_alias=True), changes)
    return value


def _deep(base: Any, changes: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(changes, Mapping):
        return {**base, **{key: _deep(base.get(key), item) for key, item in changes.items()}}
    return changes


def profiles() -> list[GpuSpec]:
    """All GPU profiles that come with simserve, by name."""
    return [find_gpu(name) for name in resources.names("hardware_profiles")]
