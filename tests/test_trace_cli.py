"""`simserve trace`: inspect, convert and fit as a person meets them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from simserve.cli import app
from simserve.report.plots import traffic_plot
from simserve.spec.load import load_scenario
from simserve.workload.trace_facts import trace_facts
from simserve.workload.trace_fit import fit_trace, ks_distance
from simserve.workload.traces import read_trace
from simserve.workload.workload import build_workload

SAMPLES = Path(__file__).parent / "data" / "traces"
KEYS = {
    "format",
    "requests",
    "rows",
    "left_out",
    "input_tokens",
    "output_tokens",
    "span_s",
    "sessions",
    "notes",
}


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["trace", *arguments], catch_exceptions=False)


def sample(name: str) -> str:
    return str(SAMPLES / name)


def bursty(count: int = 4000, cv: float = 2.0, rate: float = 5.0) -> Path:
    """A trace of gamma gaps and lognormal lengths."""
    rng = np.random.default_rng(7)
    times = np.cumsum(rng.gamma(1 / cv**2, cv**2 / rate, count))
    inputs, outputs = rng.lognormal(6, 1, count).astype(int) + 1, rng.lognormal(4, 0.5, count).astype(int) + 1
    rows = "".join(f"{time:.6f},{i},{o}\n" for time, i, o in zip(times, inputs, outputs, strict=True))
    Path("bursty.csv").write_text("arrival,input_len,output_len\n" + rows)
    return Path("bursty.csv")


# inspect


def test_inspect_says_in_json_what_would_be_taken() -> None:
    done = call("inspect", sample("burstgpt.csv"), "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found.keys() >= KEYS
    assert found["format"] == "burstgpt"
    assert (found["rows"], found["requests"], found["left_out"]) == (6, 5, 1)
    assert found["input_tokens"] == 450 + 1100 + 500 + 400 + 300
    assert found["output_tokens"] == 20 + 240 + 40 + 280 + 12
    assert found["span_s"] == 144
    assert found["sessions"] == 1
    assert any("Response tokens is 0" in note for note in found["notes"])


def test_inspect_shows_a_table_the_notes_and_a_picture() -> None:
    done = call("inspect", sample("mooncake.jsonl"), "-o", "pictures/traffic.png")
    assert done.exit_code == 0
    shown = re.sub(r"\s+", " ", done.stdout)
    for said in (
        "format mooncake (recognised)",
        "requests 5",
        "span (s) 4.1",
        "prompt tokens said before (%) 50.67",
        "Times are taken for milliseconds",
    ):
        assert said in shown
    assert {path.name for path in Path("pictures").iterdir()} == {"traffic.svg", "traffic.png"}
    assert "wrote pictures/traffic.svg" in done.stderr


def test_inspect_counts_bad_rows_that_a_run_would_refuse() -> None:
    Path("t.csv").write_text("arrival,input_len,output_len\n0,5,1\nx,5,1\n2,0,1\n3,5,1\n")
    found = json.loads(call("inspect", "t.csv", "--json").stdout)
    assert (found["rows"], found["requests"], found["left_out"]) == (4, 2, 2)
    assert found["first_left_out"].startswith("line 3: arrival 'x'")


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.name)
def test_every_sample_is_inspected_or_sent_elsewhere(path: Path) -> None:
    options = ["--characters-per-token", "4"] if path.name in {"sharegpt.json", "lmcache.jsonl"} else []
    done = call("inspect", str(path), "--json", *options)
    if path.name in {"profile_export_aiperf.json", "summary_lifecycle_metrics.json"}:
        assert done.exit_code == 2
        assert "is a summary" in done.stderr
        return
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["rows"] == found["requests"] + found["left_out"]


def test_facts_are_those_of_the_process_that_made_the_trace() -> None:
    facts = trace_facts(read_trace(bursty()))
    assert facts["mean_rate"] == pytest.approx(5, rel=4 * 2 / 4000**0.5)
    assert facts["gap_cv"] == pytest.approx(2, rel=0.1)
    assert facts["burstiness"] == pytest.approx(1 / facts["gap_cv"] ** 2)
    assert facts["ideal_hit_rate"] is None
    assert abs(facts["length_correlation"]) < 0.05
    assert facts["input_lengths"]["p50"] == pytest.approx(np.exp(6), rel=0.1)


def test_the_picture_has_rate_lengths_and_gaps_and_says_where_there_are_no_times() -> None:
    drawn = traffic_plot([0, 1, 1, 3], (np.array([0, 3]), np.array([1.0])), [5, 6, 7], [1, 1, 2])
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["Rate over time", "Lengths", "Gaps, 33% of them 0"]
    empty = traffic_plot([], None, [5], [1])
    assert "no times" in empty.axes[0].texts[0].get_text()


# convert


def test_convert_says_what_it_left_out() -> None:
    done = call("convert", sample("burstgpt.csv"), "mine.csv")
    assert done.exit_code == 0
    assert "wrote 5 requests to mine.csv" in done.stderr
    assert "1 of 6 rows left out, the first at line 6: Response tokens is 0" in done.stderr
    assert "Columns not used: Elapsed time, Total tokens, Log Type." in done.stderr


def test_convert_scales_to_a_rate() -> None:
    assert call("convert", sample("azure_2023.csv"), "mine.csv", "--rate", "10").exit_code == 0
    assert trace_facts(read_trace(Path("mine.csv")))["mean_rate"] == pytest.approx(10)
    done = call("convert", sample("azure_2023.csv"), "other.csv", "--rate", "10", "--speedup", "2")
    assert done.exit_code == 2
    assert "state one of them" in done.stderr


def test_block_hashes_need_json_lines() -> None:
    done = call("convert", sample("mooncake.jsonl"), "mine.csv")
    assert done.exit_code == 2
    assert "name it mine.jsonl" in done.stderr
    assert not Path("mine.csv").exists()
    assert call("convert", sample("mooncake.jsonl"), "mine.jsonl").exit_code == 0
    again = json.loads(call("inspect", "mine.jsonl", "--json").stdout)
    assert again["ideal_hit_rate"] == pytest.approx((512 + 1200 + 1024) / (1200 + 700 + 1200 + 1700 + 600))


# fit


def test_a_fit_is_a_scenario_with_the_statistics_of_the_trace() -> None:
    done = call("fit", str(bursty()), "-o", "fit.yaml", "--json")
    assert done.exit_code == 0
    near = {one["statistic"]: one for one in json.loads(done.stdout)["statistics"]}
    assert abs(near["arrival rate (1/s)"]["distance"]) < 0.1
    assert abs(near["cv of gaps"]["distance"]) < 0.15
    for name in ("gaps (s)", "input tokens", "output tokens"):
        assert near[name]["distance"] < 1.95 * (2 / 4000) ** 0.5, "two draws of one distribution: 0.1 % lie further"
    question = load_scenario(Path("fit.yaml"))
    workload = build_workload(question)
    trace = read_trace(Path("bursty.csv"))
    assert len(workload) == len(trace)
    assert workload.input_len.mean() == pytest.approx(trace.input_len.mean(), rel=0.1)
    assert "is there already" in call("fit", "bursty.csv", "-o", "fit.yaml").stderr


@pytest.mark.parametrize(
    ("gaps", "process"), [(np.ones(200), "constant"), (np.random.default_rng(1).exponential(1, 20_000), "poisson")]
)
def test_arrivals_are_named_by_their_spread(gaps: np.ndarray, process: str) -> None:
    rows = "".join(f"{time:.6f},5,{row % 3 + 1}\n" for row, time in enumerate(np.cumsum(gaps)))
    Path("t.csv").write_text("arrival,input_len,output_len\n" + rows)
    section = fit_trace(read_trace(Path("t.csv"))).workload
    assert section["arrivals"]["process"] == process
    assert section["input"] == 5
    assert section["output"]["distribution"] == "empirical"


def test_silences_become_stages() -> None:
    rng = np.random.default_rng(3)
    times = np.concatenate([start + np.sort(rng.uniform(0, 50, 500)) for start in (0, 10_000, 30_000)])
    Path("t.csv").write_text("arrival,input_len,output_len\n" + "".join(f"{t:.6f},5,1\n" for t in times))
    done = call("fit", "t.csv", "-o", "fit.yaml", "--json")
    assert done.exit_code == 0
    workload = build_workload(load_scenario(Path("fit.yaml")))
    assert len(workload) == pytest.approx(1500, abs=5 * 1500**0.5)
    assert "stages of Poisson arrivals" in done.stdout


def test_chats_become_sessions() -> None:
    rows = []
    for chat in range(50):
        spoken = 0
        for turn in range(1 + chat % 3):
            prompt, answer = spoken + 20 + chat, 5 + turn
            rows.append((10 * chat + turn, prompt, answer, chat, "" if turn == 0 else "3"))
            spoken = prompt + answer
    text = "".join(f"{time},{prompt},{answer},{chat},{think}\n" for time, prompt, answer, chat, think in rows)
    Path("t.csv").write_text("arrival,input_len,output_len,session,think\n" + text)
    assert call("fit", "t.csv", "-o", "fit.yaml").exit_code == 0
    workload = build_workload(load_scenario(Path("fit.yaml")))
    turns = np.bincount(workload.session)
    assert {*turns.tolist()} <= {1, 2, 3}
    assert len(workload) == len(rows)
    assert load_scenario(Path("fit.yaml")).workload.sessions is not None


def test_shared_beginnings_keep_their_hits() -> None:
    rows = "".join(
        json.dumps(
            {
                "timestamp": 500 * row,
                "input_length": 1100 + row % 40,
                "output_length": 9,
                "hash_ids": [row % 20, 100 + row % 20, 1000 + row],
            }
        )
        + "\n"
        for row in range(600)
    )
    Path("t.jsonl").write_text(rows)
    done = call("fit", "t.jsonl", "-o", "fit.yaml", "--json")
    assert done.exit_code == 0
    near = {one["statistic"]: one for one in json.loads(done.stdout)["statistics"]}
    assert near["ideal hit rate"]["trace"] == pytest.approx(580 * 1024 / sum(1100 + row % 40 for row in range(600)))
    assert abs(near["ideal hit rate"]["distance"]) < 0.05


def test_ks_distance() -> None:
    assert ks_distance(np.arange(10), np.arange(10)) == 0
    assert ks_distance(np.arange(10), np.arange(10) + 100) == 1
    assert ks_distance(np.array([1, 2, 3, 4]), np.array([1, 2, 5, 6])) == 0.5
