"""The page of the gallery says what was measured, and nothing else."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from notebooks import gallery_page
from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario

SCENARIO = """
name: {name}
description: {claim}
model: llama-3.1-8b
workload: {{arrivals: {{process: all_at_once}}, input: 8, output: 2, num_requests: 1}}
cluster: {{gpu: h100-sxm-80gb}}
"""


def entry(text: str, measured: dict[str, Any]) -> Any:
    """An entry with that docstring."""
    made = ModuleType("made", text)
    made.measure = lambda: measured  # type: ignore[attr-defined]
    made.draw = lambda numbers, figure: figure.subplots().plot(numbers["curve"])  # type: ignore[attr-defined]
    return made


def scenario(name: str, claim: str) -> Scenario:
    return parse_scenario(SCENARIO.format(name=name, claim=claim))


def section(name: str, text: str, measured: dict[str, Any]) -> gallery_page.Section:
    claim = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return gallery_page.section_of(name, entry(text, measured), scenario(name.title(), claim), measured)


def test_page_shows_claim_picture_text_and_numbers_of_each_entry_in_order() -> None:
    one = section("big", "Big is\nbeautiful.\n\nIt is {size_m:.1f} m\nbig.\n", {"size_m": 12.34, "curve": [1, 2]})
    two = section("small", "Small is, too.\n", {"bytes": 123456.7, "share": 0.12345, "users": 32.0, "curve": [2, 1]})
    text = gallery_page.page({"First": [two], "Empty": [], "Then": [one]})
    assert "**Big is beautiful.**\n\n![Big](pictures/big.png)\n\nIt is 12.3 m big.\n" in text
    assert "| size m | 12.3 |\n" in text
    assert "| bytes | 123,457 |\n| share | 0.123 |\n| users | 32 |\n" in text
    assert "- First: [Small](#small)\n- Then: [Big](#big)\n" in text
    assert text.index("## Small") < text.index("## Big")
    assert "curve" not in text
    assert "Empty" not in text


def test_text_cannot_name_what_was_not_measured() -> None:
    with pytest.raises(ValueError, match=r"gallery/big: 'weight' in the docstring; measured: size"):
        section("big", "It weighs {weight} kg.", {"size": 1.0})


def test_claim_and_scenario_say_the_same() -> None:
    with pytest.raises(ValueError, match=r"description is not the claim 'Big is fine\.'"):
        gallery_page.section_of("big", entry("Big is fine.", {}), scenario("Big", "Big is beautiful."), {})


def test_pictures_are_the_same_bytes_for_the_same_numbers(tmp_path: Path) -> None:
    made = entry("A line.", {"curve": [1, 3, 2]})
    drawn = [
        gallery_page.save_picture(gallery_page.picture(made, made.measure()), tmp_path / place, "line")
        for place in ("here", "there")
    ]
    assert [path.name for path in drawn] == ["line.png"] * 2
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
    assert not list(tmp_path.rglob("*.svg"))


def test_every_entry_has_a_scenario_a_test_and_one_place() -> None:
    names = gallery_page.names()
    assert names
    assert sorted(name for members in gallery_page.in_chapters(names).values() for name in members) == names
    for name in names:
        assert (gallery_page.SCENARIOS / f"{name}.yaml").is_file()
        assert (Path(__file__).parent / f"test_{name}.py").is_file()


def test_every_picture_of_the_page_is_there() -> None:
    text = (gallery_page.FOLDER / "README.md").read_text(encoding="utf-8")
    pictures = [line.split("(")[1].removesuffix(")") for line in text.splitlines() if line.startswith("![")]
    assert pictures
    assert all((gallery_page.FOLDER / picture).is_file() for picture in pictures)


@pytest.mark.slow
def test_the_page_says_what_is_measured_today(tmp_path: Path) -> None:
    text = (gallery_page.FOLDER / "README.md").read_text(encoding="utf-8")
    for name in gallery_page.names():
        assert gallery_page.make(name, tmp_path).markdown() in text, f"make gallery: {name} has changed"
