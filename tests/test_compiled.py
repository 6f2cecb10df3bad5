"""The compiled build leaves the very bytes of the plain source: run by `make test-compiled`, in its environment.

The plain source is this checkout, put before the compiled build on the path of the same interpreter.
"""

import os
import subprocess
import sys
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import pytest

import simserve
from simserve.engine import is_compiled

ROOT = Path(__file__).parent.parent
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
QUESTIONS = {
    "quickstart": ["quickstart"],
    "kernels": ["quickstart", "workload.trace.limit=100", "run.resolution=kernels"],
    "host-sync": ["quickstart", "engine.host_sync=layer", "engine.async_scheduling=false", "engine.enforce_eager=true"],
    "in-model-attention": [
        "quickstart",
        "cluster.gpu=rtx-pro-6000-96gb",
        "cluster.replicas=2",
        "cluster.router=random",
    ],
    "memory-pressure": ["memory-pressure", "workload.num_requests=300"],
    "multi-turn-chat": ["multi-turn-chat", "workload.num_requests=300"],
    "pools": ["gallery/disaggregation"],
    "pools-in-stages": ["gallery/disaggregation", "cluster.pipeline_parallel=2"],
    "pools-with-drafts": [
        "gallery/disaggregation",
        "engine.speculative={method: mtp, num_speculative_tokens: 3, acceptance: 0.7}",
    ],
    "prefill-first": ["gallery/long_prompt", "engine.scheduler=prefill_first"],
    "priority": ["classes-priority", "workload.num_requests=300"],
    "speculation": [
        "memory-pressure",
        "workload.num_requests=300",
        "engine.speculative={method: mtp, num_speculative_tokens: 3, acceptance: 0.7}",
    ],
    "retry-storm": ["gallery/retry_storm", "workload.duration=120 s"],
    "static": ["gallery/static_batching", "workload.num_requests=300"],
    "swapping": ["gallery/preemption"],
}

pytestmark = pytest.mark.skipif(not is_compiled(), reason="the compiled build is tested by `make test-compiled`")


def simserve_from(path: str, folder: Path, *arguments: str) -> str:
    """stdout of `simserve`, imported from `path` before all else."""
    environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "simserve", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def written(path: str, folder: Path, *question: str) -> dict[str, bytes]:
    """The files of a run's folder."""
    simserve_from(path, folder, "run", *question, "-o", "out")
    return {file.name: file.read_bytes() for file in (folder / "out").iterdir()}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_run_leaves_the_bytes_of_the_plain_source(question: list[str], tmp_path: Path) -> None:
    (tmp_path / "compiled").mkdir()
    (tmp_path / "plain").mkdir()
    compiled = written("", tmp_path / "compiled", *question)
    plain = written(str(ROOT), tmp_path / "plain", *question)
    assert {"summary.json", "requests.parquet", "steps.parquet"} <= compiled.keys()
    assert compiled.keys() == plain.keys()
    assert [name for name in plain if compiled[name] != plain[name]] == []


def test_version_tells_which_is_which(tmp_path: Path) -> None:
    assert simserve_from("", tmp_path, "--version") == f"simserve {simserve.__version__} (compiled)\n"
    assert simserve_from(str(ROOT), tmp_path, "--version") == f"simserve {simserve.__version__}\n"


def test_it_was_built_from_this_checkout() -> None:
    """Otherwise another source is tested: `make compiled` builds anew what has changed."""
    package = Path(simserve.__file__).parent
    assert package != ROOT / "simserve"
    for path in (ROOT / "simserve").rglob("*.py"):
        assert (package / path.relative_to(ROOT / "simserve")).read_bytes() == path.read_bytes(), path


def test_all_files_that_are_to_be_compiled_are() -> None:
    hook = WHEEL["hooks"]["mypyc"]
    excluded = {path for pattern in hook["exclude"] for path in ROOT.glob(pattern.lstrip("/"))}
    for pattern in hook["include"]:
        paths = [path for path in ROOT.glob(pattern.lstrip("/")) if path not in excluded and path.stem != "__init__"]
        assert paths, f"{pattern}: no such file"
        for path in paths:
            module = find_spec(".".join(path.relative_to(ROOT).with_suffix("").parts))
            assert module is not None
            assert str(module.origin).endswith(tuple(EXTENSION_SUFFIXES)), module
