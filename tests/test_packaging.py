"""The built wheel, installed into an environment of its own, finds all it needs away from the repository."""

import ast
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pydantic
import pytest

import simserve

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the backend that is installed: nothing is downloaded."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q", "-w"]
    subprocess.run([*command, str(out), str(ROOT)], check=True, capture_output=True)
    return next(out.glob("simserve-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `simserve` command of a fresh environment that holds the wheel and borrows the dependencies of this one."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv.create(home / "venv", with_pip=False, symlinks=True)
    python = home / "venv" / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        "-q",
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    site = next((home / "venv" / "lib").glob("python*/site-packages"))
    borrowed = Path(pydantic.__file__).parent.parent
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    return home / "venv" / "bin" / "simserve"


def call(command: Path, folder: Path, *arguments: str) -> str:
    """stdout of the installed command, called in another folder without this checkout on its path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(command), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_carries_profiles_models_gallery_types_and_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind in ("hardware_profiles", "scenarios"):
        files = {path.relative_to(ROOT) for path in (ROOT / kind).rglob("*") if path.is_file()}
        assert {f"simserve/{path.as_posix()}" for path in files} <= names
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "simserve").rglob("*") if path.is_file()}
    package = {name for name in package if "__pycache__" not in name}
    assert "simserve/models/llama-3.1-8b.json" in package
    assert package <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "shared/"))]


def test_wheel_is_pure_python(wheel: Path) -> None:
    """It runs anywhere and needs no compiler; `make compiled` builds the other one."""
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".pyd"))]


def test_a_subclass_of_a_compiled_class_is_compiled() -> None:
    """Else the compiled build fails where the class is used: mypyc seals its classes."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    hook = build["hooks"]["mypyc"]
    chosen = {path for pattern in hook["include"] for path in ROOT.glob(pattern.removeprefix("/"))}
    kept = {name for name in hook["exclude"] if "/" not in name}
    chosen = {path for path in chosen if path.name not in kept and f"/{path.relative_to(ROOT)}" not in hook["exclude"]}
    sealed = []
    for path in sorted((ROOT / "simserve").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        origin = {
            alias.name: ROOT.joinpath(*(node.module or "").split(".")).with_suffix(".py")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for node in classes:
            of = [origin.get(base.id, path) for base in node.bases if isinstance(base, ast.Name)]
            if path not in chosen and any(base in chosen for base in of):
                sealed.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert not sealed


def test_installed_command_runs_elsewhere(installed: Path, tmp_path: Path) -> None:
    python = installed.parent / "python"
    where = call(python, tmp_path, "-c", "import simserve; print(simserve.__file__)")
    assert not Path(where.strip()).is_relative_to(ROOT)
    assert "quickstart" in call(installed, tmp_path, "gallery")
    assert "llama-3.1-8b" in call(installed, tmp_path, "models")
    assert "h100-sxm-80gb" in call(installed, tmp_path, "profiles")
    table = call(installed, tmp_path, "run", "quickstart", "workload.trace.limit=50", "-o", "out")
    assert "Serving Benchmark Result" in table
    assert (tmp_path / "out" / "summary.json").exists()


def test_gallery_copy_brings_a_scenario_that_runs_where_it_lands(installed: Path, tmp_path: Path) -> None:
    call(installed, tmp_path, "gallery", "quickstart", "--copy")
    assert "Mean TTFT" in call(installed, tmp_path, "run", "quickstart.yaml", "workload.trace.limit=20")


def test_installed_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    assert call(installed, tmp_path, "--version") == f"simserve {simserve.__version__}\n"


def test_default_dependencies_hold_no_deep_learning_framework() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert not [name for name in wanted if name.startswith(("torch", "triton", "nvidia", "vllm", "transformers"))]
