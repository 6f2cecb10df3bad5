"""Models by name or file: the catalogue that comes with simserve, and what a user brings."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from simserve.spec import resources
from simserve.spec.dtypes import canonical_dtype, is_dtype
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu, profiles, read_gpu, resolve_gpu
from simserve.spec.hf_config import model_from_config
from simserve.spec.model import ModelSpec
from simserve.spec.quantities import shown
from simserve.spec.resources import is_path
from simserve.spec.strict import nearest, unknown

__all__ = [
    "catalogue",
    "find_gpu",
    "find_model",
    "is_path",
    "profiles",
    "read_gpu",
    "read_model",
    "resolve_gpu",
    "resolve_model",
]


def catalogue() -> list[ModelSpec]:
    """All models that come with simserve, by name."""
    return [find_model(name) for name in resources.names("models")]


@cache
def find_model(name: str) -> ModelSpec:
    """Model of the catalogue.

    Raises:
        ScenarioError: no such name; the message suggests the nearest.
    """
    return model_from_config(_read_json(_path_in_catalogue(name)), name)


def read_model(path: Path) -> ModelSpec:
    """Model of a Hugging Face `config.json`, named after the file, or after its folder where it is called just that.

    Raises:
        ScenarioError: the file cannot be read or describes a model that is not modelled.
    """
    path = path / "config.json" if path.is_dir() else path
    return model_from_config(_read_json(path), _name_of(path))


def _path_in_catalogue(name: str) -> Path:
    path = resources.find("models", f"{name}.json")
    if path is None:
        known = resources.names("models")
        raise ScenarioError(f"{unknown('model', name, known)} (a model of your own is the path of its config.json)")
    return path


def _path_of(name: str) -> Path:
    if not is_path(name):
        return _path_in_catalogue(name)
    return Path(name) / "config.json" if Path(name).is_dir() else Path(name)


def _name_of(path: Path) -> str:
    return path.parent.name if path.stem == "config" else path.stem


def _read_json(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = nearest(path.name, resources.names("models"))
        hint = f"; the catalogue has {near!r}" if near else ""
        raise ScenarioError(f"{path}: no such file{hint}") from None
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: cannot be read as a config.json: {error}") from None
    if not isinstance(config, dict):
        raise ScenarioError(f"{path}: a config.json holds one object, this one a {type(config).__name__}")
    return config


def resolve_model(value: Any) -> Any:
    """Fields of the model that `model:` of a scenario names.

    A catalogue name; the path of a config.json; a mapping with `config` (name, path or the configuration itself) and
    fields of `ModelSpec` that differ from it; or a mapping of all fields.

    Raises:
        ScenarioError: no such model or file, or one that is not modelled.
    """
    if isinstance(value, str):
        return read_model(Path(value)) if is_path(value) else find_model(value)
    if isinstance(value, ModelSpec):
        return value
    if not isinstance(value, Mapping):
        raise ScenarioError(
            f"expected the name of a model, the path of a config.json, or a mapping, got {shown(value)}"
        )
    if "config" in value:
        return _model_with_changes(value)
    if "num_hidden_layers" in value:
        raise ScenarioError("a Hugging Face configuration belongs under `config:`")
    return value


def _model_with_changes(value: Mapping[str, Any]) -> dict[str, Any]:
    name, config = _config_of(value["config"])
    if is_dtype(canonical_dtype(value.get("weight_dtype"))):
        # What is stated stands for what the checkpoint says of its format, known or not.
        config = {**config, "quantization_config": {"quant_method": value["weight_dtype"]}}
    model = model_from_config(config, str(value.get("name", name)))
    # vLLM's "auto" is what the configuration says, as is null.
    stated = {key: item for key, item in value.items() if item is not None and item != "auto"}
    return {**model.model_dump(by_alias=True), **{key: item for key, item in stated.items() if key != "config"}}


def _config_of(config: object) -> tuple[str, Mapping[str, Any]]:
    """Name and content of a configuration that is named, lies in a file, or is written out."""
    if isinstance(config, Mapping):
        return "custom", config
    if not isinstance(config, str):
        raise ScenarioError(f"config: expected a name, a path or a Hugging Face configuration, got {shown(config)}")
    path = _path_of(config)
    return _name_of(path), _read_json(path)
