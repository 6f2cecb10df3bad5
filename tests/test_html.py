"""The page of a run: self-contained, made again from the folder alone, and saying what a person needs."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from made_result import poisson, with_status
from scenario_text import scenario

from simserve.report.explain import explanations
from simserve.report.html import report_figures, report_page, write_report
from simserve.report.run_folder import read_run
from simserve.report.summary import summarize
from simserve.report.text import count, limit_ms, ms, number, percent
from simserve.report.write_run import write_run
from simserve.spec.result import Result

CLASSES = "workload.classes=[{name: chat, share: 0.5}, {name: <b>atch, share: 0.5}]"


@pytest.fixture(scope="module")
def result() -> Result:
    question = scenario("slo={ttft: 10 s, tpot: 1 ns}", CLASSES, "description='Is 1 < 2 & \"so\" on?'", "name=a<b")
    meta = {"num_gpu_blocks": 4097, "cost_level": "datasheet", "total_steps": 100, "extrapolated_steps": 3,
            "step_time_breakdown": {"linear": 3.0, "host": 1.0}, "version": "9.9.9"}  # fmt: skip
    made = poisson(130, rate=20).run(scenario=question, class_names=("chat", "<b>atch"), meta=meta)
    made.requests["class_index"][:] = np.arange(130) % 2
    with_status(made, 3, "unfinished")
    return made


@pytest.fixture(scope="module")
def folder(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(result, tmp_path_factory.mktemp("report") / "run", report=True).path


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


class Elements(HTMLParser):
    """Checks that elements close in order, and collects the identifiers."""

    VOID = ("meta", "use", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_page_is_whole_and_its_identifiers_differ(page: str) -> None:
    elements = Elements()
    elements.feed(page)
    assert elements.open == []
    figures = [name for name in elements.ids if name.endswith("figure_1")]
    assert len(figures) == len(set(figures)) == 5


def test_page_needs_nothing_from_elsewhere(page: str) -> None:
    outside = re.findall(r'(?:src|href)="(?!#)[^"]*"|url\((?!#)[^)]*\)|@import', page)
    assert outside == []
    assert "<script" not in page


def test_references_inside_the_pictures_are_kept(page: str) -> None:
    ids = set(re.findall(r'id="([^"]*)"', page))
    used = set(re.findall(r'href="#([^"]*)"', page)) | set(re.findall(r"url\(#([^)]*)\)", page))
    assert used
    assert used <= ids


def test_page_answers_the_question(page: str, folder: Path) -> None:
    summary = read_run(folder).summary
    assert "Misses the objective" in page
    assert ">missed</td>" in page
    assert f"<b>{ms(summary['p95_ttft_ms'])}</b>" in page
    assert "llama-3.1-8b: 8.0 B parameters" in page
    assert "poisson arrivals, rate 8" in page
    assert "1 requests were unfinished" in page
    assert "Cost level datasheet, step times from data-sheet peaks" in page
    assert "3.0 % of steps beyond the measured range" in page
    assert "replicas: 1" in page
    assert "seed 0, simserve 9.9.9" in page


def test_text_of_the_user_is_escaped(page: str) -> None:
    assert "Is 1 &lt; 2 &amp; &quot;so&quot; on?" in page
    assert "<h1>a&lt;b</h1>" in page
    assert "<b>atch" not in page
    assert "&lt;b&gt;atch" in page


def test_light_and_dark(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert page.count("var(--ink)") > 20


def test_folder_alone_gives_the_page_again(folder: Path, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in (folder / "plots").iterdir()} | {
        "page": (folder / "report.html").read_bytes()
    }
    assert write_report(read_run(folder)) == folder / "report.html"
    after = {p.name: p.read_bytes() for p in (folder / "plots").iterdir()} | {
        "page": (folder / "report.html").read_bytes()
    }
    assert before == after
    names = {"latency", "timeline", "step_time", "memory", "requests"}
    assert set(after) == {"page"} | {f"{name}.{kind}" for name in names for kind in ("svg", "png")}


def test_a_run_of_many_requests_has_no_bar_for_each(tmp_path: Path) -> None:
    run = write_run(poisson(201, rate=50).run(scenario=scenario()), tmp_path / "run")
    assert set(report_figures(run)) == {"latency", "timeline", "step_time", "memory"}
    assert "No objective was set." in report_page(run, {"latency": ""})


def test_a_run_without_results_has_a_page(tmp_path: Path) -> None:
    result = poisson(3, rate=20).run(scenario=scenario("slo={ttft: 1 s}"))
    for row in range(3):
        with_status(result, row, "rejected")
    run = write_run(result, tmp_path / "run")
    assert set(report_figures(run)) == {"latency", "timeline", "step_time", "memory", "requests"}
    page = report_page(run, {"latency": ""})
    assert "Nothing was completed" in page
    assert "nothing was completed" in page


def test_explanations_follow_from_the_summary(result: Result) -> None:
    summary = summarize(result)
    lines = explanations(summary)
    assert lines[0].startswith("Load: stable.")
    assert any(line.startswith("Steps: their time goes into linear layers 75.0") for line in lines)
    assert any("The cache was tight" in line for line in explanations(summary | {"kv_cache_usage_peak": 0.99}))
    assert not any(line.startswith("Prefix cache") for line in lines)
    cached = explanations(summary | {"prefix_cache_hit_rate": 0.5})
    assert "Prefix cache: 50.0\u202f% of the prompt tokens were found in it and not computed." in cached


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(x) for x in (0.1234, 12.345, 123.45, 1234567.0, None)] == [
        "0.12",
        "12.3",
        "123",
        "1\u202f234\u202f567",
        "–",
    ]
    assert [ms(x) for x in (5.0, 12345.0, None)] == ["5.00\u202fms", "12.3\u202fs", "–"]
    assert (limit_ms(500.0), limit_ms(2000.0)) == ("500\u202fms", "2\u202fs")
    assert (count(1234), percent(0.5), percent(None)) == ("1\u202f234", "50.0\u202f%", "–")
