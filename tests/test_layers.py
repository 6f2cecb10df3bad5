"""Imports point one way, and heavy libraries are loaded only by the functions that need them."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import simserve

PACKAGE = Path(simserve.__file__).parent
ENGINE = {"spec", "workload", "cost", "engine"}
RUN = ENGINE | {"cluster", "simulation"}
MAY_IMPORT = {
    "spec": set(),
    "workload": {"spec"},
    "cost": {"spec"},
    "report": {"spec"},
    "engine": ENGINE,
    "cluster": ENGINE,
    "simulation": RUN,
    "validation": RUN | {"report"},
    "planning": RUN | {"report"},
    "cli": RUN | {"report", "validation", "planning"},
    "__main__": {"cli"},
}
HEAVY = {"pandas", "matplotlib", "pyarrow", "rich", "dask"}
NEVER = {"torch", "triton", "transformers", "vllm", "calibration"}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The layer that a file belongs to: its folder, or its name at the top."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(node: ast.AST) -> Iterator[str]:
    """Dotted names that the import statements below a node load."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            assert child.level == 0, "imports are absolute"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)


def run_on_import(tree: ast.Module) -> Iterator[ast.AST]:
    """Statements that run when the module is loaded: no function bodies, no `if TYPE_CHECKING`."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        pending += ast.iter_child_nodes(node)


def module_of(path: Path) -> str:
    """The dotted name by which a file is imported."""
    return ".".join(("simserve", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_of(path): path for path in SOURCES}


def loaded_by(path: Path) -> set[str]:
    """Files of the package that one imports anywhere, for types, too."""
    names = imports(ast.parse(path.read_text()))
    return {name if name in MODULES else name.rpartition(".")[0] for name in names} & set(MODULES)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, the first one repeated at the end; empty if there is none."""
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def own_parts(names: Iterator[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("simserve.")}


def tops(names: Iterator[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    imported = own_parts(imports(ast.parse(path.read_text()))) & set(MAY_IMPORT)
    assert part in MAY_IMPORT, f"{part}: give the new part its place in the layers"
    assert imported - {part} <= MAY_IMPORT[part]


@pytest.mark.parametrize("folder", sorted({part_of(path) for path in SOURCES if path.parent != PACKAGE}))
def test_imports_inside_a_folder_make_no_circle(folder: str) -> None:
    graph = {
        name: {other for other in loaded_by(path) if part_of(MODULES[other]) == folder}
        for name, path in MODULES.items()
        if part_of(path) == folder
    }
    assert len(graph) > 2
    assert circle(graph) == []


def test_a_circle_is_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}
    assert "simserve.cluster.records" in loaded_by(MODULES["simserve.cluster.fleet"])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_are_imported_inside_functions(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tops(imports(tree)) & NEVER
    loaded = [name for node in run_on_import(tree) for name in imports(node)]
    assert not tops(iter(loaded)) & HEAVY
    if part_of(path) != "report":
        assert "report" not in own_parts(iter(loaded))


def test_the_two_checks_above_can_fail() -> None:
    tree = ast.parse("import pandas\ndef f():\n    import rich\nclass A:\n    from simserve.report import table\n")
    loaded = [name for node in run_on_import(tree) for name in imports(node)]
    assert tops(iter(loaded)) == {"pandas", "simserve"}
    assert own_parts(iter(loaded)) == {"report"}
    assert "rich" in tops(imports(tree))


@pytest.mark.parametrize(
    "module", ["simserve", "simserve.cli", "simserve.spec", "simserve.simulation", "simserve.planning.sweep"]
)
def test_loading_a_module_loads_no_heavy_library(module: str) -> None:
    banned = sorted(HEAVY | NEVER | {"scipy", "IPython"})
    code = f"import sys, {module}; print(*[name for name in {banned} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_run_without_a_report_loads_only_pyarrow_of_them(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "simserve",
        "run",
        "quickstart",
        "workload.trace.limit=10",
        "-o",
        "out",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert {"numpy", "pyarrow"} <= loaded
    assert not loaded & (HEAVY | NEVER) - {"pyarrow"}
