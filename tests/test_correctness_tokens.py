"""inference-sim#1299: a prompt has two counts of tokens, the client's and the server's, and the server's is computed.

A client counts the text that it sends. The server adds its chat template and a BOS token, and may cut. A replay that
takes the one for the other is off in TTFT, so that every trace, run and report says whose count it has.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scenario_text import scenario
from typer.testing import CliRunner

from simserve.cli import app
from simserve.report.counted import counted_by
from simserve.report.metrics import ttft
from simserve.report.question import question_facts
from simserve.report.run_folder import read_run
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.report.write_run import write_run
from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import Result
from simserve.validation.replay_benchmark import read_recording, replay_report, replayed
from simserve.workload.trace_writer import convert_trace
from simserve.workload.traces import read_trace

REAL = Path(__file__).parent / "real"
BENCH = {
    "start_times": [7.0, 7.5, 7.25],
    "input_lens": [1000, 3000, 2000],
    "output_lens": [1, 2, 3],
    "errors": ["", "", ""],
    "ttfts": [0.1, 0.3, 0.2],
    "itls": [[], [0.01], [0.01, 0.01]],
}


def bench(folder: Path) -> Path:
    path = folder / "bench.json"
    path.write_text(json.dumps(BENCH))
    return path


def own(folder: Path, *rows: str, header: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def run(trace: Path, format: str = "csv", more: str = "") -> Result:
    return simulate(scenario(f"workload={{trace: {{file: {trace}, format: {format}{more}}}}}"))


def wording(result: Result) -> str:
    """The printed report on one line."""
    return " ".join(benchmark_table(summarize(result)).split())


# The trace format has both


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_1299_a_trace_keeps_both_counts(tmp_path: Path, format: str) -> None:
    source = own(tmp_path, "0,30,10,3", "1,40,,2", "2,50,60,1", header="arrival,input_len,client_input_len,output_len")
    convert_trace(source, tmp_path / f"copy.{format}", "csv")
    for trace in (read_trace(source), read_trace(tmp_path / f"copy.{format}", format)):
        assert trace.input_len.tolist() == [30, 40, 50]
        assert trace.client_input_len is not None
        assert trace.client_input_len.tolist() == [10, -1, 60], "either may be larger, and a row may lack it"
        assert trace.input_counted_by == "server"


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_1299_a_count_that_only_the_client_made_keeps_its_name(tmp_path: Path, format: str) -> None:
    convert_trace(bench(tmp_path), tmp_path / f"copy.{format}", "vllm_bench")
    trace = read_trace(tmp_path / f"copy.{format}", format)
    assert trace.input_counted_by == "client"
    assert trace.client_input_len is not None
    assert trace.input_len.tolist() == trace.client_input_len.tolist() == [1000, 2000, 3000]
    told = read_trace(tmp_path / f"copy.{format}", format, chat_template_tokens=25)
    assert told.input_counted_by == "server"
    assert told.input_len.tolist() == [1025, 2025, 3025]
    assert told.client_input_len is not None
    assert told.client_input_len.tolist() == [1000, 2000, 3000]


@pytest.mark.parametrize("count", ["0", "-3", "2.5", "many"])
@pytest.mark.parametrize(("header", "row"), [("input_len,client_input_len", "5,{}"), ("client_input_len", "{}")])
def test_1299_a_count_of_the_client_is_a_whole_number(tmp_path: Path, count: str, header: str, row: str) -> None:
    rows = [f"0,{row.format(each)},1" for each in (7, count)]
    path = own(tmp_path, *rows, header=f"arrival,{header},output_len")
    with pytest.raises(
        ScenarioError, match=f"line 3: client_input_len '{count}' is not a whole number of tokens from 1"
    ):
        read_trace(path)
    assert read_trace(path, skip_bad_rows=True).skipped_rows == 1


def test_1299_a_template_does_not_mend_a_count(tmp_path: Path) -> None:
    path = own(tmp_path, "0,0,1", header="arrival,client_input_len,output_len")
    with pytest.raises(ScenarioError, match="client_input_len '0' is not a whole number"):
        read_trace(path, chat_template_tokens=9)


def test_1299_a_row_without_the_only_count_is_named(tmp_path: Path) -> None:
    path = own(tmp_path, "0,4,1", "1,,1", header="arrival,client_input_len,output_len")
    with pytest.raises(ScenarioError, match="line 3: client_input_len is missing"):
        read_trace(path)


@pytest.mark.parametrize(
    ("format", "header", "time", "name"),
    [
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46", "ContextTokens"),
        ("csv", "arrival,input_len,output_len", "0", "input_len"),
    ],
)
def test_1299_a_template_is_not_added_to_what_the_server_counted(
    tmp_path: Path, format: str, header: str, time: str, name: str
) -> None:
    path = own(tmp_path, f"{time},4,1", header=header)
    with pytest.raises(ScenarioError, match=f"{path}: {name} is the server's count.*take chat_template_tokens out"):
        run(path, format, ", chat_template_tokens: 3")


# The simulation uses the server's


def test_1299_the_servers_count_is_simulated(tmp_path: Path) -> None:
    """A benchmark with the server's template is the run of the server's own counts, to the last bit."""
    told = run(bench(tmp_path), "vllm_bench", ", chat_template_tokens: 25")
    server = run(own(tmp_path, "0,1025,1", "0.25,2025,3", "0.5,3025,2", header="arrival,input_len,output_len"))
    for name, column in server.requests.items():
        np.testing.assert_array_equal(told.requests[name], column, name)
    assert set(told.requests) - set(server.requests) == {"client_input_len"}
    assert told.requests["client_input_len"].tolist() == [1000, 2000, 3000]
    client = run(bench(tmp_path), "vllm_bench")
    assert (ttft(told.requests) > ttft(client.requests)).all(), "the bias that the case is about"


def test_1299_the_count_of_the_client_changes_nothing_that_is_simulated(tmp_path: Path) -> None:
    rows = ["0,900,a", "0.1,500,b", "0.2,1000,a"]
    alone = run(own(tmp_path, *(f"{row},9" for row in rows), header="arrival,input_len,session,output_len"))
    both = run(
        own(
            tmp_path,
            *(f"{row},9,{client}" for row, client in zip(rows, (880, 600, ""), strict=True)),
            header="arrival,input_len,session,output_len,client_input_len",
        )
    )
    for name, column in alone.requests.items():
        np.testing.assert_array_equal(both.requests[name], column, name)
    assert both.requests["client_input_len"].tolist() == [880, 600, -1]


def test_1299_a_turn_that_moves_takes_its_count_along(tmp_path: Path) -> None:
    """A turn that waits for an answer stands behind its parent in the run, wherever it stood in the file."""
    header = "arrival,input_len,client_input_len,output_len,session,think"
    result = run(own(tmp_path, "0,100,91,5,a,", "1,200,92,5,,", ",300,93,5,a,2", header=header))
    assert result.requests["input_len"].tolist() == [100, 300, 200]
    assert result.requests["client_input_len"].tolist() == [91, 93, 92]


# The report says which


def test_1299_the_report_says_whose_count_it_was(tmp_path: Path) -> None:
    told = run(bench(tmp_path), "vllm_bench", ", chat_template_tokens: 25")
    assert "Input tokens counted by: server (client counted 1.2 % fewer)" in wording(told)
    assert summarize(told)["input_tokens_client_share"] == 6000 / 6075
    client = run(bench(tmp_path), "vllm_bench")
    assert "Input tokens counted by: client (as recorded; a server adds its template)" in wording(client)
    server = run(own(tmp_path, "0,1025,1", header="arrival,input_len,output_len"))
    assert "Input tokens counted by: server Mean queue time" in wording(server)
    for result, whose in ((told, "server"), (client, "client"), (server, "server")):
        assert summarize(result)["input_tokens_counted_by"] == whose
        assert f"input counted by {whose}" in question_facts(result.scenario, summarize(result))["Lengths"]


def test_1299_drawn_lengths_have_one_count(tmp_path: Path) -> None:
    drawn = simulate(scenario())
    assert "client_input_len" not in drawn.requests
    assert "counted by" not in wording(drawn)
    assert counted_by(summarize(drawn)) is None
    assert "counted by" not in str(question_facts(drawn.scenario, summarize(drawn)))


@pytest.mark.parametrize(("share", "words"), [(1.0, "the same"), (1.031, "3.1 % more"), (0.97, "3.0 % fewer")])
def test_1299_how_far_the_client_was_is_said_in_words(share: float, words: str) -> None:
    summary = {"input_tokens_counted_by": "server", "input_tokens_client_share": share}
    assert counted_by(summary) == f"server (client counted {words})"


def test_1299_a_written_run_has_both_counts(tmp_path: Path) -> None:
    told = run(bench(tmp_path), "vllm_bench", ", chat_template_tokens: 25")
    write_run(told, tmp_path / "run", csv=True)
    again = read_run(tmp_path / "run")
    assert again.requests["client_input_len"].tolist() == [1000, 2000, 3000]
    assert summarize(again.result) == summarize(told)
    assert '"client_input_len"' in (tmp_path / "run" / "requests.csv").read_text().partition("\n")[0]


# A measured server


def test_1299_a_measured_benchmark_is_replayed_with_the_servers_count(tmp_path: Path) -> None:
    recording = read_recording(bench(tmp_path), chat_template_tokens=25)
    assert recording.input_len.tolist() == [1025, 2025, 3025]
    with replayed(scenario(), recording) as ready:
        requests = simulate(ready).requests
    assert requests["input_len"].tolist() == [1025, 2025, 3025]
    report = replay_report(scenario(), recording)
    assert report["input_tokens_counted_by"] == "server"
    assert report["input_tokens_client_share"] == 6000 / 6075
    recording = read_recording(bench(tmp_path))
    assert replay_report(scenario(), recording)["input_tokens_counted_by"] == "client"
    with replayed(scenario(), recording) as ready:
        assert simulate(ready).meta["input_tokens_counted_by"] == "client"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("b.csv", "arrival_s,prompt_len,client_prompt_len,output_len,ttft_s,e2e_s\n1,30,25,2,.1,.2\n0,20,19,2,.1,.2\n"),
        (
            "b.jsonl",
            '{"arrival_time": 1, "queued_ts": 1, "first_token_ts": 2, "last_token_ts": 3, "input_toks": 30,'
            ' "client_input_toks": 25, "output_toks": 2}\n'
            '{"arrival_time": 0, "queued_ts": 0, "first_token_ts": 2, "last_token_ts": 3, "input_toks": 20,'
            ' "client_input_toks": 19, "output_toks": 2}\n',
        ),
    ],
)
def test_1299_a_measured_file_may_give_both(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    recording = read_recording(path)
    assert recording.input_counted_by == "server"
    assert recording.input_len.tolist() == [20, 30]
    assert recording.client_input_len is not None
    assert recording.client_input_len.tolist() == [19, 25]
    with pytest.raises(ScenarioError, match=r"holds the server's count.*take chat_template_tokens out"):
        read_recording(path, chat_template_tokens=3)


def test_1299_the_commands_take_the_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bench(tmp_path)
    done = CliRunner().invoke(
        app, ["trace", "convert", "bench.json", "mine.csv", "--format", "vllm_bench", "--chat-template-tokens", "25"]
    )
    assert done.exit_code == 0, done.output
    assert Path("mine.csv").read_text().splitlines()[:2] == [
        "arrival,input_len,client_input_len,output_len",
        "0.0,1025,1000,1",
    ]
    told = ["validate", "run", "quickstart", "--against", "bench.json"]
    assert "counted by: client (as recorded" in CliRunner().invoke(app, told).output
    done = CliRunner().invoke(app, [*told, "--chat-template-tokens", "25"])
    assert "counted by: server (client counted 1.2 % fewer)" in done.output
