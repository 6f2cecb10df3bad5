"""GPUs by name or file: the profiles that come with simserve, what a user brings, and what differs from either."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simserve.spec import resources
from simserve.spec.complaints import describe
from simserve.spec.document import read_document
from simserve.spec.errors import ScenarioError
from simserve.spec.gpu_names import profile_named
from simserve.spec.hardware import GpuSpec
from simserve.spec.overrides import consistent
from simserve.spec.quantities import shown
from simserve.spec.resources import is_path


def profiles() -> list[GpuSpec]:
    """All GPU profiles that come with simserve, by name."""
    return [find_gpu(name) for name in resources.names("hardware_profiles")]


def find_gpu(name: str) -> GpuSpec:
    """Profile that comes with simserve, by its own name or by one that fits no other (`H200`, `h100-sxm`, `NVIDIA L4`).

    Raises:
        ScenarioError: no such name, several profiles that it fits, or a device of another kind; the message says which.
    """
    return _profile(profile_named(name))


@cache
def _profile(name: str) -> GpuSpec:
    return read_gpu(resources.folder("hardware_profiles") / name)


def read_gpu(path: Path) -> GpuSpec:
    """Profile of a YAML file, or of the `profile.yaml` in a folder. It may state a `base` and what differs from it.

    Raises:
        ScenarioError: the file cannot be read or is not a profile; one line per problem.
    """
    document = read_document(path / "profile.yaml" if path.is_dir() else path)
    try:
        return GpuSpec.model_validate(resolve_gpu(document.data) if isinstance(document.data, dict) else document.data)
    except ValidationError as error:
        raise ScenarioError(describe(error, document)) from None


def resolve_gpu(value: Any) -> Any:
    """Fields of the GPU that `cluster.gpu` names.

    A profile's name; the path of a profile; a mapping with `base` (name or path) and what differs from it, section by
    section, tables of numbers as a whole; or a mapping of all fields. What was measured on the base does not hold where
    the changes contradict it, see `simserve.spec.overrides`.

    Raises:
        ScenarioError: no such profile, or a file that is not one.
    """
    if isinstance(value, str):
        return read_gpu(Path(value)) if is_path(value) else find_gpu(value)
    if isinstance(value, GpuSpec):
        return value
    if not isinstance(value, Mapping):
        raise ScenarioError(f"expected the name of a GPU, the path of a profile.yaml, or a mapping, got {shown(value)}")
    if "base" not in value:
        return value
    base = resolve_gpu(value["base"])
    changes = {key: item for key, item in value.items() if key != "base"}
    if not isinstance(base, GpuSpec):
        try:
            base = GpuSpec.model_validate(base)
        except ValidationError:
            return _overlaid(base, changes)
    return consistent(base, _overlaid(base.model_dump(), changes), changes)


def _overlaid(base: Any, changes: Any) -> Any:
    is_table = isinstance(changes, Mapping) and all(isinstance(key, int) for key in changes)
    holds_numbers = isinstance(base, Mapping) and not any(isinstance(item, Mapping) for item in base.values())
    if not isinstance(base, Mapping) or not isinstance(changes, Mapping) or (is_table and holds_numbers):
        return changes
    return {**base, **{key: _overlaid(base.get(key), item) for key, item in changes.items()}}
