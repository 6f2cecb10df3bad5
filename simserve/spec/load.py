"""From a YAML file to a `Scenario`: base files merged, overrides applied, faults reported with file, line and key."""

from collections.abc import Sequence
from pathlib import Path

from simserve.spec import resources
from simserve.spec.data_files import with_absolute_files
from simserve.spec.document import Document, parse_document, read_document
from simserve.spec.errors import ScenarioError
from simserve.spec.overlay import merge
from simserve.spec.scenario import Scenario


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Scenario of a YAML file, with overrides such as `cluster.replicas=4` applied in order.

    Files that a scenario names are sought from its own folder, then among those that come with simserve.

    Raises:
        ScenarioError: the file, one of its bases or an override is not a valid scenario; one line per problem.
    """
    return Scenario.of(_read_with_base(Path(path), ()), overrides)


def parse_scenario(text: str, overrides: Sequence[str] = (), origin: str = "<text>") -> Scenario:
    """Scenario of YAML text; files that it names are sought from the current folder.

    Raises:
        ScenarioError: as `load_scenario`.
    """
    return Scenario.of(_with_base(parse_document(text, origin), Path.cwd(), ()), overrides)


def _read_with_base(path: Path, readers: tuple[Path, ...]) -> Document:
    if path.resolve() in readers:
        raise ScenarioError(f"{path}: is its own base, by way of {', '.join(str(reader) for reader in readers)}")
    return _with_base(read_document(path), path.parent, (*readers, path.resolve()))


def _with_base(document: Document, folder: Path, readers: tuple[Path, ...]) -> Document:
    place = document.place(("base",))
    if not isinstance(document.data, dict):
        raise ScenarioError(f"{place}: a scenario is a mapping with keys such as model, workload and cluster")
    document = with_absolute_files(document, folder)
    base = document.data.pop("base", None)
    if base is None:
        return document
    path = _base_path(base, folder) if isinstance(base, str) else None
    if path is None:
        raise ScenarioError(f"{place}: base: expected the path of another scenario, got {base!r}, which is not a file")
    return merge(_read_with_base(path, readers), document)


def _base_path(base: str, folder: Path) -> Path | None:
    return folder / base if (folder / base).is_file() else resources.find("scenarios", base)
