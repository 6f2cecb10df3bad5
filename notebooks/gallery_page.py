"""The gallery: one page with a claim, a picture and measured numbers for each mechanism (`make gallery`).

An entry is a module `notebooks/gallery/NAME.py` beside a scenario `scenarios/gallery/NAME.yaml`. The first paragraph of
its docstring is the claim, which the scenario repeats as its `description`; what follows is text. Both may name what
was measured, as in `{tpot_ms:.1f}`. `measure()` runs the scenario with overrides and returns numbers by name (and lists
of numbers, for the curves of the picture); `draw(measured, figure)` draws them into an empty matplotlib figure in
simserve's style. `python -m notebooks.gallery_page NAME` measures and draws one entry and prints its section.
"""

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from simserve.report.plots.style import figure, save_figure, styled
from simserve.spec import resources
from simserve.spec.load import load_scenario
from simserve.spec.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "gallery"
SCENARIOS = resources.folder("scenarios") / "gallery"

CHAPTERS = {
    "Steps and kernels": ("autoregression", "batching", "launch_bound", "quantisation", "speculative"),
    "Scheduling": ("static_batching", "long_prompt"),
    "Memory": ("without_kv", "paged_kv", "prefix_caching", "preemption"),
    "Clients": ("api_server", "load_curve", "rate_limit", "retry_storm", "noisy_neighbour", "batch_tier"),
    "Many GPUs": ("tensor_parallel", "pipeline_parallel", "expert_parallel", "disaggregation", "prefix_affinity"),
}
"""Order of the page. Entries that no chapter names come last, in the order of the alphabet."""

HEAD = """\
# Gallery

One mechanism of LLM serving a section: what is claimed, a picture, and the numbers that simserve measures. `make
gallery` runs all of it again and writes this page: no number is typed by hand, and `tests/gallery` asserts each claim.
`simserve run gallery/NAME` runs the scenario of a section, `simserve gallery gallery/NAME` shows it, and `KEY=VALUE`
changes it.
"""

Measured = Mapping[str, float | Sequence[float]]


class Entry(Protocol):
    """What a module of the gallery offers, beside its docstring."""

    __doc__: str | None

    def measure(self) -> Measured:
        """Numbers by name."""
        ...

    def draw(self, measured: Measured, figure: "Figure") -> None:
        """Draw them."""
        ...


class Section(NamedTuple):
    """What the page says of an entry."""

    name: str
    title: str
    claim: str
    text: str
    numbers: Mapping[str, float]

    def markdown(self) -> str:
        """The section; pictures and files as seen from the page."""
        rows = [f"| {name.replace('_', ' ')} | {readable(value)} |" for name, value in self.numbers.items()]
        parts = [
            f"## {self.title}",
            f"**{self.claim}**",
            f"![{self.title}](pictures/{self.name}.png)",
            self.text,
            f"<details><summary>All {len(rows)} numbers</summary>",
            "\n".join(["| measured | |", "|---|---|", *rows]),
            "</details>",
            f"Scenario [`gallery/{self.name}`](../../scenarios/gallery/{self.name}.yaml), measured and drawn by "
            f"[`{self.name}.py`]({self.name}.py)",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def readable(value: float) -> str:
    """Three digits, and whole numbers from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def section_of(name: str, entry: Entry, scenario: Scenario, measured: Measured) -> Section:
    """Section of an entry, its text filled with what was measured.

    Raises:
        ValueError: the docstring names what was not measured, or its claim is not the scenario's description.
    """
    numbers = {key: value for key, value in measured.items() if isinstance(value, int | float)}
    paragraphs = [" ".join(paragraph.split()) for paragraph in (entry.__doc__ or "").split("\n\n")]
    if paragraphs[0] != " ".join(scenario.description.split()):
        raise ValueError(f"gallery/{name}: the scenario's description is not the claim {paragraphs[0]!r}")
    try:
        claim, *text = (paragraph.format_map(numbers) for paragraph in paragraphs)
    except (KeyError, ValueError) as error:
        raise ValueError(f"gallery/{name}: {error} in the docstring; measured: {', '.join(numbers)}") from None
    return Section(name, scenario.name, claim, "\n\n".join(text), numbers)


@styled
def picture(entry: Entry, measured: Measured) -> "Figure":
    """The picture of an entry, of one size unless it sets another."""
    drawn = figure(7.2, 3.2)
    entry.draw(measured, drawn)
    return drawn


def save_picture(drawn: "Figure", folder: Path, name: str) -> Path:
    """Write NAME.png: the same bytes for the same numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = save_figure(drawn, folder / name)
    svg.unlink()  # a page shows one, and Markdown shows this one everywhere
    return png


def page(chapters: Mapping[str, Iterable[Section]]) -> str:
    """The whole page."""
    sections = {chapter: list(members) for chapter, members in chapters.items()}
    lines = [
        f"- {chapter}: " + ", ".join(f"[{section.title}](#{anchor(section.title)})" for section in members)
        for chapter, members in sections.items()
        if members
    ]
    texts = [section.markdown() for members in sections.values() for section in members]
    return "\n".join([HEAD, "\n".join(lines), "", *texts])


def anchor(title: str) -> str:
    """Where GitHub lets a heading be linked."""
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def names() -> list[str]:
    """Entries of the gallery, in the order of the alphabet."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def in_chapters(entries: Sequence[str]) -> dict[str, list[str]]:
    """Entries by chapter."""
    chapters = {title: [name for name in members if name in entries] for title, members in CHAPTERS.items()}
    placed = {name for members in CHAPTERS.values() for name in members}
    return chapters | {"More": [name for name in entries if name not in placed]}


def make(name: str, pictures: Path) -> Section:
    """Measure and draw an entry."""
    entry = cast("Entry", importlib.import_module(f"notebooks.gallery.{name}"))
    scenario = load_scenario(SCENARIOS / f"{name}.yaml")
    measured = entry.measure()
    section = section_of(name, entry, scenario, measured)
    save_picture(picture(entry, measured), pictures, name)
    return section


def main(only: Sequence[str] = ()) -> None:
    """Write the page and its pictures; of some entries only, their pictures, and print their sections."""
    pictures = FOLDER / "pictures"
    for name in only:
        print(make(name, pictures).markdown())
    if not only:
        chapters = in_chapters(names())
        sections = {chapter: [make(name, pictures) for name in members] for chapter, members in chapters.items()}
        (FOLDER / "README.md").write_text(page(sections), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
