"""Models and GPUs by name or file: the catalogue that comes with simserve, and what a user brings."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from simserve.spec import resources
from simserve.spec.dtypes import DTYPES, canonical_dtype, is_dtype
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.model import ModelSpec
from simserve.spec.quantities import shown
from simserve.spec.strict import nearest, unknown


def catalogue() -> list[ModelSpec]:
    """All models that come with simserve, by name."""
    return [find_model(name) for name in resources.names("models")]


@cache
def find_model(name: str) -> ModelSpec:
    """Model of the catalogue, by its name or its Hugging Face id.

    Raises:
        ScenarioError: no such name; the message suggests the nearest.
    """
    path = _path_in_catalogue(name)
    config = _read_json(path)
    return model_from_config(config, path.stem, beside=config.pop(_BESIDE, None))


_BESIDE = "hf_quant_config"
"""Key under which a file of the catalogue has what stands in `hf_quant_config.json` beside the published one."""


@cache
def _names_by_id() -> Mapping[str, str]:
    """Hugging Face ids of all models of the catalogue, in small letters -> their names there."""
    found: dict[str, str] = {}
    for name in resources.names("models"):
        path = resources.find("models", f"{name}.json")
        assert path is not None
        found |= {identity.lower(): name for identity in _read_json(path).get("_ids", ())}
    return found


def read_model(path: Path) -> ModelSpec:
    """Model of a Hugging Face `config.json`, named after the file, or after its folder where it is called just that.

    Raises:
        ScenarioError: the file cannot be read or describes a model that is not modelled.
    """
    path = path / "config.json" if path.is_dir() else path
    return model_from_config(_read_json(path), _name_of(path), beside=_read_beside(path))


def named_model(name: str) -> ModelSpec:
    """Model of the catalogue, or of a file, whichever a name means.

    Raises:
        ScenarioError: neither, or a file that cannot be read or is not modelled.
    """
    return read_model(Path(name)) if is_path(name) else find_model(name)


def _path_in_catalogue(name: str) -> Path:
    own = name.lower() if "/" not in name else _names_by_id().get(name.lower(), name)
    path = resources.find("models", f"{own}.json")
    if path is None:
        known = resources.names("models")
        remedy = "`simserve models` lists them; a model of your own is the path of its config.json"
        raise ScenarioError(f"{unknown('model', name, known)} ({remedy})")
    return path


def _path_of(name: str) -> Path:
    if not is_path(name):
        return _path_in_catalogue(name)
    return Path(name) / "config.json" if Path(name).is_dir() else Path(name)


def _name_of(path: Path) -> str:
    return path.parent.name if path.stem == "config" else path.stem.removesuffix("_config")


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


def is_path(name: str) -> bool:
    """Whether a model is named by a file rather than by its name or id in the catalogue."""
    return Path(name).exists() if is_id(name) else resources.is_path(name)


def is_id(name: str) -> bool:
    """Whether a name is the Hugging Face id of a model of the catalogue."""
    return "/" in name and name.lower() in _names_by_id()


def resolve_model(value: Any) -> Any:
    """Fields of the model that `model:` of a scenario names.

    A catalogue name; the path of a config.json; a mapping with `config` (name, path or the configuration itself) and
    fields of `ModelSpec` that differ from it; or a mapping of all fields.

    Raises:
        ScenarioError: no such model or file, or one that is not modelled.
    """
    if isinstance(value, str):
        return named_model(value)
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


_CHANGES = ("name", "kv_dtype", "activation_dtype", "weight_bytes", "weight_dtype", "assume", "ignore", "config")
"""Keys beside `config:` that are not keys of the configuration."""

_OUR_NAMES = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}
"""Names that a model written down in a few numbers has -> those of a configuration."""


def _model_with_changes(value: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, and what the user says beside it: formats, or keys that it lacks or has otherwise."""
    name, config, beside = _config_of(value["config"])
    # vLLM's "auto" is what the configuration says, as is null.
    stated = {key: item for key, item in value.items() if item is not None and item != "auto"}
    keys = {_OUR_NAMES.get(key, key): item for key, item in stated.items() if key not in _CHANGES}
    weights = canonical_dtype(stated.get("weight_dtype"))
    if weights is not None and not is_dtype(weights):
        near = nearest(weights, DTYPES) if isinstance(weights, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        said = shown(stated["weight_dtype"])
        raise ScenarioError(f"weight_dtype: expected one of {', '.join(DTYPES)}, got {said}{hint}")
    model = model_from_config(
        _with_keys(config, keys),
        str(value.get("name", name)),
        beside=beside,
        assume=_assumed(stated.get("assume")),
        ignore=_ignored(stated.get("ignore")),
        weight_dtype=None if weights is None else str(weights),
    )
    changed: dict[str, Any] = {
        key: stated[key] for key in ("kv_dtype", "activation_dtype", "weight_bytes") if key in stated
    }
    return {**model.model_dump(by_alias=True), **changed}


def _with_keys(config: Mapping[str, Any], keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with keys stated beside it: where it has them, else with those of the language model."""
    for section in ("text_config", "llm_config"):
        inner = config.get(section)
        if isinstance(inner, Mapping) and keys:
            own = {key: item for key, item in keys.items() if key in config and key not in inner}
            rest = {key: item for key, item in keys.items() if key not in own}
            return {**config, **own, section: {**inner, **rest}}
    return {**config, **keys}


def _assumed(family: object) -> str | None:
    if family is not None and not isinstance(family, str):
        raise ScenarioError(f"assume: expected the name of a family such as llama, got {shown(family)}")
    return family


def _ignored(keys: object) -> list[str]:
    if keys is None:
        return []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ScenarioError(f"ignore: expected a list of keys of the configuration, got {shown(keys)}")
    return keys


def _config_of(config: object) -> tuple[str, Mapping[str, Any], Mapping[str, Any] | None]:
    """Name and content of a configuration that is named, lies in a file, or is written out; and the content of
    `hf_quant_config.json` beside it.
    """
    if isinstance(config, Mapping):
        return "custom", config, None
    if not isinstance(config, str):
        raise ScenarioError(f"config: expected a name, a path or a Hugging Face configuration, got {shown(config)}")
    path = _path_of(config)
    content = _read_json(path)
    return _name_of(path), content, content.pop(_BESIDE, None) or _read_beside(path)


def _read_beside(path: Path) -> dict[str, Any] | None:
    """Content of `hf_quant_config.json` in the folder of a configuration, where ModelOpt states formats (of a file
    `NAME_config.json` that is `NAME_hf_quant_config.json`); None where there is none.
    """
    if not path.name.endswith("config.json"):
        return None
    beside = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
    return _read_json(beside) if beside.is_file() else None
