"""Where the files that come with simserve lie: hardware profiles, scenarios and model configurations.

A wheel carries `hardware_profiles/` and `scenarios/` inside the package, a checkout has them at its root. This is the
only place that knows.
"""

from functools import cache
from pathlib import Path
from typing import Literal

import simserve

Kind = Literal["hardware_profiles", "scenarios", "models"]

_PACKAGE = Path(simserve.__file__).parent


@cache
def folder(kind: Kind) -> Path:
    """Folder of one kind: in the package first, then beside it.

    Raises:
        FileNotFoundError: the installation is not complete.
    """
    for parent in (_PACKAGE, _PACKAGE.parent):
        if (parent / kind).is_dir():
            return parent / kind
    raise FileNotFoundError(f"simserve's {kind} folder is neither in {_PACKAGE} nor beside it")


def find(kind: Kind, name: str) -> Path | None:
    """File or folder of that kind and name, which may hold folders (`traces/azure_conv_2023.csv`) but not leave it."""
    path = folder(kind) / name
    inside = path.resolve().is_relative_to(folder(kind).resolve())
    return path if inside and path.exists() else None


def names(kind: Kind) -> list[str]:
    """Names of that kind in alphabetical order: profiles by folder, models and scenarios by file without suffix
    (`quickstart`, `gallery/batching`).
    """
    if kind == "hardware_profiles":
        return sorted(path.parent.name for path in folder(kind).glob("*/profile.yaml"))
    files = folder(kind).rglob("*.json" if kind == "models" else "*.yaml")
    return sorted(path.relative_to(folder(kind)).with_suffix("").as_posix() for path in files)


def data_path(file: str) -> Path:
    """Place of a data file that a scenario names: absolute as loading leaves it, or among simserve's own scenarios."""
    return Path(file) if Path(file).is_absolute() else folder("scenarios") / file


def is_path(name: str) -> bool:
    """Whether a model or GPU is named by a file rather than by its name in the catalogue."""
    return "/" in name or name.endswith((".json", ".yaml", ".yml"))
