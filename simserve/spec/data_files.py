"""Files that a scenario names: models, profiles and data, sought from the folder of whoever names them."""

from pathlib import Path
from typing import Any

from simserve.spec import resources
from simserve.spec.catalogue import is_id
from simserve.spec.document import Document
from simserve.spec.resources import is_path


def with_absolute_files(document: Document, folder: Path) -> Document:
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
    if not isinstance(value, str) or not is_path(value) or (is_id(value) and not (folder / value).exists()):
        return value
    return str((folder / value).resolve())


def _absolute_data_files(value: Any, folder: Path) -> Any:
    """The workload with each `file:` in it made absolute."""
    if isinstance(value, list):
        return [_absolute_data_files(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _absolute_data_files(item, folder) for key, item in value.items()}
    if isinstance(found.get("tokenizer"), str) and (folder / found["tokenizer"]).exists():
        found["tokenizer"] = str((folder / found["tokenizer"]).resolve())
    return found | {"file": _absolute_data_file(found["file"], folder)} if isinstance(found.get("file"), str) else found


def _absolute_data_file(file: str, folder: Path) -> str:
    """Absolute path; a file among simserve's own keeps its name there, so that records do not depend on the machine."""
    path, own = (folder / file).resolve(), resources.folder("scenarios").resolve()
    if path.is_relative_to(own):
        return path.relative_to(own).as_posix()
    return file if not path.exists() and resources.find("scenarios", file) else str(path)
