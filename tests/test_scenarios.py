"""Every scenario runs as it is, asks one question (in the gallery: claims something) and takes the alternatives that
its comments name.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from simserve.simulation import simulate
from simserve.spec import resources
from simserve.spec.load import load_scenario, parse_scenario
from simserve.spec.result import COMPLETED, UNFINISHED, Result
from simserve.spec.scenario import Scenario
from simserve.workload.workload import build_workload

FOLDER = resources.folder("scenarios")
ALL = list(resources.names("scenarios"))
CLAIMS = [name for name in ALL if name.startswith("gallery/")]
NAMES = [name for name in ALL if name not in CLAIMS]


def shortened(name: str) -> Scenario:
    """The scenario with a few of its requests."""
    scenario = load_scenario(FOLDER / f"{name}.yaml")
    if scenario.workload.trace:
        return scenario.with_overrides(["workload.trace.limit=100"])
    if scenario.workload.duration:
        return scenario.with_overrides(["workload.duration=5 s"])
    return scenario.with_overrides([f"workload.num_requests={min(100, len(build_workload(scenario)))}"])


def run(name: str) -> Result:
    return simulate(shortened(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_runs(name: str) -> None:
    result = run(name)
    assert len(result.requests["status"]) == len(build_workload(result.scenario)) > 0
    assert np.all(result.requests["status"] == COMPLETED)


@pytest.mark.parametrize("name", CLAIMS)
def test_every_scenario_of_the_gallery_runs_to_its_end(name: str) -> None:
    result = run(name)
    assert len(result.requests["status"]) == len(build_workload(result.scenario)) > 0
    assert np.all(result.requests["status"] != UNFINISHED)
    assert np.any(result.requests["status"] == COMPLETED)


@pytest.mark.parametrize("name", CLAIMS)
def test_every_scenario_of_the_gallery_is_short_and_claims_something(name: str) -> None:
    scenario = load_scenario(FOLDER / f"{name}.yaml")
    assert scenario.description.endswith(".")
    assert len((FOLDER / f"{name}.yaml").read_text().splitlines()) < 50
    assert len(build_workload(scenario)) <= 2000


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_asks_one_question(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    scenario = load_scenario(FOLDER / f"{name}.yaml")
    assert scenario.description.endswith("?")
    assert len(scenario.description) < 130
    assert len(text.splitlines()) < 35
    assert len(build_workload(scenario)) <= 100_000


def alternatives() -> list[tuple[str, str]]:
    """Scenario and text with one value replaced, for each `key: value  # try this, that` of the gallery."""
    found = []
    for name in NAMES:
        text = (FOLDER / f"{name}.yaml").read_text()
        for line in re.finditer(r"^( +\w+: )\S+ +# .*\btry (.+)$", text, re.MULTILINE):
            found += [(name, text.replace(line[0], line[1] + value)) for value in re.split(", | and ", line[2])]
    return found


@pytest.mark.parametrize(("name", "text"), alternatives())
def test_every_alternative_that_a_comment_names_is_one(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    changed = parse_scenario(text)
    assert changed != load_scenario(FOLDER / f"{name}.yaml")


def test_the_gallery_names_alternatives() -> None:
    assert len(alternatives()) >= 5


def test_every_trace_has_its_source_and_licence_beside_it() -> None:
    readme = (FOLDER / "traces" / "README.md").read_text()
    for path in Path(FOLDER / "traces").glob("*.*"):
        assert path.name in readme or path.name == "README.md"
    assert "CC-BY-4.0" in readme
    assert "Splitwise" in readme
