"""The registry of metrics: an entry is all that it takes, and every limit of an SLO is one on a metric."""

from pathlib import Path

import numpy as np
import pytest
from made_result import poisson
from matplotlib.text import Text
from scenario_text import scenario

from simserve.report.html import report_page
from simserve.report.metric import RequestMetric
from simserve.report.metrics import METRICS, metrics_in, metrics_of
from simserve.report.plots import latency_cdf_plot
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.report.unit import Unit
from simserve.report.write_run import write_run
from simserve.spec.result import Result
from simserve.spec.slo import SloSpec


def prompts(result: Result) -> np.ndarray:
    return result.requests["input_len"].astype(np.float64)


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Result:
    """A run of two classes, with a metric more in the registry: the length of the prompt, in thousands of tokens."""
    toy = RequestMetric(
        key="prompt",
        name="prompt",
        title="Length of the Prompt",
        text="tokens of the prompt, if > 0",
        unit=Unit("kilotokens", 1e-3),
        formula=prompts,
    )
    monkeypatch.setitem(METRICS, "prompt", toy)
    question = scenario("workload.classes=[{name: chat, share: 0.5}, {name: batch, share: 0.5}]")
    made = poisson(120, rate=10).run(scenario=question, class_names=("chat", "batch"))
    made.requests["class_index"][:] = np.arange(120) % 2
    return made


def test_an_entry_makes_the_statistics(result: Result) -> None:
    found, lengths = summarize(result), result.requests["input_len"] / 1e3
    assert found["mean_prompt_kilotokens"] == pytest.approx(lengths.mean())
    assert found["std_prompt_kilotokens"] == pytest.approx(lengths.std())
    assert found["p99_prompt_kilotokens"] == pytest.approx(np.percentile(lengths, 99))
    assert found["n_prompt"] == 120
    assert found["classes"]["batch"]["median_prompt_kilotokens"] == pytest.approx(np.median(lengths[1::2]))


def test_an_entry_makes_the_lines_of_the_console(result: Result) -> None:
    lines = benchmark_table(summarize(result)).splitlines()
    lengths = result.requests["input_len"] / 1e3
    assert f"Mean prompt (kilotokens):                {lengths.mean():<10.2f}" in lines
    assert f"P95 prompt (kilotokens):                 {np.percentile(lengths, 95):<10.2f}" in lines


def test_an_entry_makes_its_row_and_its_definition_on_the_page(result: Result, tmp_path: Path) -> None:
    page = report_page(write_run(result, tmp_path / "run"), {"latency": ""})
    assert "<th>kilotokens</th>" in page
    assert "<tr><th>Prompt</th><td>" in page
    assert "<dt>Prompt</dt><dd>tokens of the prompt, if &gt; 0</dd>" in page


def test_an_entry_makes_its_panel(result: Result) -> None:
    axes = latency_cdf_plot(result).axes
    assert len(axes) == len(metrics_of(result))
    assert [axes[-1].get_title("left"), axes[-1].get_xlabel()] == ["Length of the Prompt", "kilotokens"]
    assert axes[-1].get_lines()[0].get_xdata()[-1] == result.requests["input_len"][::2].max() / 1e3
    assert {"chat", "batch"} <= {text.get_text() for text in axes[0].figure.findobj(Text)}


def test_a_metric_that_a_request_lacks_is_of_the_others(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    rare = RequestMetric(
        key="rare",
        name="rare",
        title="Rare",
        text="of every tenth request",
        formula=lambda run: np.where(np.arange(120) % 10 == 0, 2.0, np.nan),
    )
    monkeypatch.setitem(METRICS, "rare", rare)
    found = summarize(result)
    assert (found["n_rare"], found["mean_rare_ms"]) == (12, 2000)
    assert found["classes"]["batch"]["mean_rare_ms"] is None


def test_a_metric_that_a_run_has_no_records_of_is_nowhere(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    result.requests["hops"] = np.full(120, 3.0)
    hops = RequestMetric(
        key="hops",
        name="hops",
        title="Hops",
        text="replicas that a request saw",
        formula=lambda run: run.requests["hops"],
        needs="hops",
    )
    monkeypatch.setitem(METRICS, "hops", hops)
    with_them = summarize(result)
    assert hops in metrics_of(result)
    assert (with_them["n_hops"], hops in metrics_in(with_them)) == (120, True)
    del result.requests["hops"]
    without = summarize(result)
    assert not [key for key in without if "hops" in key]
    assert "hops" not in benchmark_table(without)


def test_every_limit_of_an_slo_is_one_on_a_metric_in_time() -> None:
    limits = set(SloSpec.model_fields) - {"percentile"}
    assert limits == {"ttft", "tpot", "itl", "e2el"}
    assert {METRICS[name].unit.symbol for name in limits} == {"ms"}


def test_keys_are_the_names_of_the_entries() -> None:
    assert [metric.key for metric in METRICS.values()] == list(METRICS)
    assert [key for key, metric in METRICS.items() if metric.in_vllm] == ["ttft", "tpot", "itl", "e2el"]
