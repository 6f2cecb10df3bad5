"""Formats of traces: every sample is recognised and read, and what is not taken from it is said."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.spec.workload import TraceSpec
from simserve.workload.formats.registry import FORMATS, recognised
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options
from simserve.workload.prefix_ids import ideal_hits
from simserve.workload.trace_writer import write_trace
from simserve.workload.traces import Trace, read_trace

SAMPLES = Path(__file__).parent / "data" / "traces"
SHARED = Path(__file__).parents[2] / "shared" / "traces"
TEXTS = Options(characters_per_token=4)
OF_TEXTS = ("sharegpt.json", "lmcache.jsonl")

FORMAT_OF: dict[str, TraceFormat] = {
    "own.csv": "csv",
    "own.jsonl": "jsonl",
    "azure_2023.csv": "azure",
    "azure_2024.csv": "azure",
    "azure_2025.csv": "azure",
    "burstgpt.csv": "burstgpt",
    "vidur.csv": "vidur",
    "servegen-chunk-0-trace.csv": "servegen",
    "servegen-chunk-0-dataset.json": "servegen",
    "mooncake.jsonl": "mooncake",
    "aiperf_trace.jsonl": "mooncake",
    "timed_trace.jsonl": "timed_trace",
    "guidellm_trace.jsonl": "guidellm_trace",
    "bailian.jsonl": "bailian",
    "lmcache.jsonl": "lmcache",
    "sharegpt.json": "sharegpt",
    "profile_export.jsonl": "aiperf",
    "benchmarks.json": "guidellm",
    "per_request_lifecycle_metrics.json": "inference_perf",
    "vllm_bench.json": "vllm_bench",
    "vllm_bench_appended.json": "vllm_bench",
    "vllm_bench_totals.json": "vllm_bench",
    "sglang_bench.jsonl": "sglang_bench",
}
SUMMARIES = {"profile_export_aiperf.json", "summary_lifecycle_metrics.json"}


def options_of(name: str) -> Options:
    return TEXTS if name in OF_TEXTS else Options()


def read(name: str, options: Options | None = None) -> Trace:
    return read_trace(SAMPLES / name, needs_arrival=None, options=options or options_of(name))


def notes(trace: Trace) -> str:
    assert trace.report is not None
    return " ".join(trace.report.sentences())


def test_every_format_has_a_sample_and_every_sample_a_format() -> None:
    assert {*FORMAT_OF.values()} | {"parquet"} == {*get_args(TraceFormat)} == {*FORMATS}
    assert {path.name for path in SAMPLES.iterdir()} == {*FORMAT_OF} | SUMMARIES


def test_the_how_to_page_names_every_format_and_every_key() -> None:
    page = (Path(__file__).parent.parent / "docs" / "how-to" / "replay-my-traffic.md").read_text()
    for name in (*FORMATS, *(key for key in TraceSpec.key_names() if key not in {"file", "format"})):
        assert f"`{name}`" in page


@pytest.mark.parametrize(("name", "form"), FORMAT_OF.items(), ids=FORMAT_OF)
def test_a_sample_is_recognised_and_read_as_if_its_format_were_stated(name: str, form: TraceFormat) -> None:
    found = read(name)
    assert found.report is not None
    assert found.report.format == form
    assert found.report.rows == found.report.requests + found.report.left_out == len(found) + found.skipped_rows
    stated = read_trace(SAMPLES / name, form, needs_arrival=None, options=options_of(name))
    for column in ("arrival", "input_len", "output_len", "session", "think", "number"):
        np.testing.assert_array_equal(getattr(found, column), getattr(stated, column), column)


@pytest.mark.parametrize("name", [name for name in FORMAT_OF if not name.startswith("servegen")])
@pytest.mark.parametrize("dress", ["gzip", "zstd", "bom", "crlf", "utf-16"])
def test_compression_and_encoding_change_nothing(tmp_path: Path, name: str, dress: str) -> None:
    raw = (SAMPLES / name).read_bytes()
    dressed = {
        "gzip": lambda: gzip.compress(raw),
        "zstd": lambda: pa.compress(raw, codec="zstd", asbytes=True),
        "bom": lambda: b"\xef\xbb\xbf" + raw,
        "crlf": lambda: raw.replace(b"\n", b"\r\n"),
        "utf-16": lambda: raw.decode().encode("utf-16"),
    }[dress]()
    (tmp_path / "trace").write_bytes(dressed)
    plain, other = read(name), read_trace(tmp_path / "trace", needs_arrival=None, options=options_of(name))
    np.testing.assert_array_equal(plain.arrival, other.arrival)
    np.testing.assert_array_equal(plain.input_len, other.input_len)
    np.testing.assert_array_equal(plain.output_len, other.output_len)


@pytest.mark.parametrize("divider", [";", "\t", "|"])
@pytest.mark.parametrize("name", [name for name in FORMAT_OF if name.endswith(".csv") and "servegen" not in name])
def test_fields_may_be_divided_otherwise(tmp_path: Path, name: str, divider: str) -> None:
    path = tmp_path / name
    path.write_text((SAMPLES / name).read_text().replace(",", divider))
    np.testing.assert_array_equal(read_trace(path, needs_arrival=None).input_len, read(name).input_len)


def test_parquet_has_our_columns_and_names_the_others(tmp_path: Path) -> None:
    table = pa.table({"arrival": [0.5, 2.0], "input_len": [10, 20], "output_len": [1, 2], "colour": ["red", "blue"]})
    pq.write_table(table, tmp_path / "trace.parquet")
    trace = read_trace(tmp_path / "trace.parquet")
    assert trace.arrival.tolist() == [0.5, 2.0]
    assert trace.input_len.tolist() == [10, 20]
    assert trace.report is not None
    assert trace.report.ignored_columns == ("colour",)
    assert read_trace(tmp_path / "trace.parquet", offset=1, limit=1).input_len.tolist() == [20]


# What each sample holds


def test_azure_of_2025_names_the_images_that_it_leaves_out() -> None:
    trace = read("azure_2025.csv")
    assert trace.input_len.tolist() == [512, 1800, 900]
    assert trace.arrival.tolist() == [0, 1.125, 3.375]
    assert "Columns not used: NumImages." in notes(trace)
    assert "not simulated" in notes(trace)


def test_burstgpt_leaves_out_failures_and_knows_which_sessions_can_be_chats() -> None:
    trace = read("burstgpt.csv")
    assert trace.output_len.tolist() == [20, 240, 40, 280, 12]
    assert trace.class_name.tolist() == ["ChatGPT", "ChatGPT", "ChatGPT", "GPT-4", "ChatGPT"]
    assert trace.session.tolist() == ["1", "", "1", "", ""], "500 tokens hold 450 + 20; 300 do not hold 1100 + 240"
    assert "1 of 6 rows left out, the first at line 6: Response tokens is 0: the request failed." in notes(trace)
    assert "1 session of several requests taken for chats" in notes(trace)
    assert "In 1 session a prompt is shorter" in notes(trace)


def test_mooncake_is_in_ms_and_its_ids_are_blocks_of_512() -> None:
    trace = read("mooncake.jsonl")
    assert trace.arrival.tolist() == [0, 0, 1.5, 2.5, 4.1]
    assert trace.prefix is not None
    assert [end for _, end in trace.prefix.pairs(0)] == [512, 1024, 1200]
    assert trace.prefix.pairs(0) == trace.prefix.pairs(2)
    assert "Times are taken for milliseconds" in notes(trace)
    assert "hashes of 512 tokens" in notes(trace)


def test_timed_traces_of_vllm_are_in_seconds_and_their_ids_blocks_of_16() -> None:
    trace = read("timed_trace.jsonl")
    assert trace.arrival.tolist() == [0, 0.5, 2.25]
    assert trace.prefix is not None
    assert [end for _, end in trace.prefix.pairs(2)] == [16, 32, 33]


def test_the_unit_of_time_may_be_stated() -> None:
    trace = read("mooncake.jsonl", Options(time_unit="s"))
    assert trace.arrival.tolist() == [0, 0, 1500, 2500, 4100]
    assert "Times are taken" not in notes(trace)


@given(st.sampled_from([1, 16, 64, 128, 512, 1024]), st.lists(st.integers(1, 9000), min_size=20, max_size=60))
def test_the_size_of_a_block_is_found_out(
    tmp_path_factory: pytest.TempPathFactory, size: int, lengths: list[int]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    rows = [
        {"timestamp": row, "input_length": length, "output_length": 1, "hash_ids": list(range(-(-length // size)))}
        for row, length in enumerate([*lengths, 9000])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(path, "mooncake")
    assert trace.prefix is not None
    for row, length in enumerate([*lengths, 9000]):
        assert [end for _, end in trace.prefix.pairs(row)] == [*range(size, length, size), length]


def test_turns_of_aiperf_are_what_is_new_in_them() -> None:
    trace = read("aiperf_trace.jsonl")
    assert trace.input_len.tolist() == [300, 310, 300 + 40 + 150, 490 + 20 + 10]
    assert trace.think[2:].tolist() == [2.0, 0.5]
    assert trace.prefix is not None
    assert trace.prefix.known.tolist() == [True, True, False, False]
    assert "input_length of 2 later turns" in notes(trace)


def test_bailian_takes_its_types_for_classes() -> None:
    trace = read("bailian.jsonl")
    assert trace.class_name.tolist() == ["text", "search", "text"]
    assert trace.arrival.tolist() == [0, 0.5, 14.25]


def test_sharegpt_is_counted_as_the_user_says() -> None:
    first = read("sharegpt.json")
    assert first.input_len.tolist() == [64 // 4, round(25 / 4)]
    assert first.input_counted_by == "client"
    assert "1 later turn left out; workload.trace.turns: all takes them." in notes(first)
    assert "1 conversation without a question" in notes(first)
    assert "guessed from characters, 4 to a token" in notes(first)
    chats = read("sharegpt.json", Options(characters_per_token=4, turns="all"))
    assert chats.session.tolist() == ["0", "0", ""]
    assert chats.input_len[1] == 16 + chats.output_len[0] + 3
    with pytest.raises(ScenarioError, match=r"state one of workload.trace.tokenizer .*characters_per_token"):
        read("sharegpt.json", Options())


def test_conversations_may_stand_one_a_line(tmp_path: Path) -> None:
    conversations = json.loads((SAMPLES / "sharegpt.json").read_text())
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in conversations))
    assert read_trace(path, needs_arrival=None, options=TEXTS).input_len.tolist() == [16, 6]
    turns = [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": [{"text": "A model."}]}]
    path.write_text(json.dumps({"model": "m", "conversation": turns}) + "\n")
    trace = read_trace(path, needs_arrival=None, options=TEXTS)
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([3], [2])


def test_a_tokenizer_counts_words_where_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the package `tokenizers`: one token a word."""

    class Words:
        @classmethod
        def from_file(cls, name: str) -> "Words":
            assert name == str(tmp_path / "tokenizer.json")
            return cls()

        def encode(self, text: str) -> SimpleNamespace:
            return SimpleNamespace(ids=text.split())

    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Words))
    (tmp_path / "tokenizer.json").write_text("{}")
    trace = read("sharegpt.json", Options(tokenizer=str(tmp_path / "tokenizer.json")))
    assert trace.input_len.tolist() == [13, 5], "four questions of four words, run together at three places"
    assert "Lengths are those of the tokenizer" in notes(trace)


def test_a_tokenizer_that_cannot_be_had_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"workload.trace.tokenizer: nix.json: (needs the package|cannot be used)"):
        read("sharegpt.json", Options(tokenizer="nix.json"))


def test_lmcache_sessions_go_on_where_they_were() -> None:
    trace = read("lmcache.jsonl")
    assert trace.session.tolist() == ["s1", "s2", "s1", "s1"]
    assert trace.input_len[2] == trace.input_len[0] + 52 + round(14 * 30 / 4)
    assert trace.think[2:].tolist() == [0.75, 1.5]
    assert trace.prefix is not None
    assert trace.prefix.known.tolist() == [True, True, False, True]
    assert trace.prefix.pairs(0)[0] == trace.prefix.pairs(1)[0] == trace.prefix.pairs(3)[0], "the system prompt"
    assert "1 turn that does not go on" in notes(trace)


def test_servegen_draws_from_either_file_the_same_requests_and_others_with_another_seed() -> None:
    one, other = read("servegen-chunk-0-trace.csv"), read("servegen-chunk-0-dataset.json")
    np.testing.assert_array_equal(one.arrival, other.arrival)
    assert {*one.input_len.tolist()} <= {100, 200, 400}
    assert {*one.output_len.tolist()} <= {10, 50}
    assert 50 < len(one) < 200, "600 s at 0.05, 0.1 and 0.02 requests/s are 102"
    assert "drawn with seed 0" in notes(one)
    again = read("servegen-chunk-0-trace.csv", Options(seed=1))
    assert len(again) != len(one) or not np.array_equal(again.arrival, one.arrival)


def test_servegen_keeps_its_rates(tmp_path: Path) -> None:
    (tmp_path / "a-trace.csv").write_text("0,2,1,Gamma,0.25,2\n6000,5,1,Weibull,0.5,1\n12000,0,0,,0,0\n")
    (tmp_path / "a-dataset.json").write_text('{"0": {"input_tokens": "{7: 1.0}", "output_tokens": "{3: 1.0}"}}')
    trace = read_trace(tmp_path / "a-trace.csv")
    early = np.count_nonzero(trace.number == 1)
    assert early == pytest.approx(12_000, rel=0.1), "a cv of 2 over 12,000 gaps: standard error 1.8 %"
    assert len(trace) - early == pytest.approx(30_000, rel=0.1)


def test_a_client_of_servegen_needs_both_files(tmp_path: Path) -> None:
    path = tmp_path / "b-trace.csv"
    path.write_text((SAMPLES / "servegen-chunk-0-trace.csv").read_text())
    with pytest.raises(ScenarioError, match=r"holds the rates .* put its other file, b-dataset.json, beside it"):
        read_trace(path)


def test_a_result_without_details_gives_its_mean_lengths_and_says_so() -> None:
    trace = read("vllm_bench_totals.json")
    assert trace.input_len.sum() == 100
    assert trace.output_len.sum() == 31
    assert "--save-detailed" in notes(trace)
    with pytest.raises(ScenarioError, match=r"no arrival times: .* the benchmark's own {process: poisson, rate: 4}"):
        read_trace(SAMPLES / "vllm_bench_totals.json")


def test_appended_results_are_taken_one_after_the_other_or_singly() -> None:
    trace = read("vllm_bench_appended.json")
    assert trace.arrival.tolist() == [0, 0.25, 0.5, 4.0, 4.5], "the first lasted 4 s"
    assert "holds 2 results (0: rate 4.0, 1: rate inf)" in notes(trace)
    assert read("vllm_bench_appended.json", Options(result=1)).input_len.tolist() == [50, 60]
    with pytest.raises(ScenarioError, match="holds 2 results, 0 to 1, not 2"):
        read("vllm_bench_appended.json", Options(result=2))


def test_results_of_sglang_have_times_from_later_versions_on() -> None:
    assert not read("sglang_bench.jsonl").has_times
    assert read("sglang_bench.jsonl", Options(result=1)).arrival.tolist() == [0, 0.5]


def test_aiperf_leaves_out_the_warm_up_and_failures() -> None:
    trace = read("profile_export.jsonl")
    assert trace.input_len.tolist() == [100, 150, 200]
    np.testing.assert_allclose(trace.arrival, [0, 0.5, 2.0], atol=1e-6)
    assert trace.session.tolist() == ["", "x", "x"]
    assert "1 request of the warm-up left out." in notes(trace)
    assert "the request failed: server gone" in notes(trace)


def test_guidellm_takes_what_was_answered_of_all_benchmarks() -> None:
    trace = read("benchmarks.json")
    assert trace.input_len.tolist() == [128, 130, 256]
    assert trace.input_counted_by == "server"
    assert "the request is incomplete" in notes(trace)
    assert "0: constant 1.0, 1: concurrent 4" in notes(trace)


def test_inference_perf_names_the_error() -> None:
    trace = read("per_request_lifecycle_metrics.json")
    assert trace.input_len.tolist() == [64, 65]
    assert "timed out" in notes(trace)


@pytest.mark.parametrize("name", sorted(SUMMARIES))
def test_a_summary_says_which_file_to_take(name: str) -> None:
    with pytest.raises(ScenarioError, match=r"is a summary without requests; take p\w+"):
        recognised(Source(SAMPLES / name))


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("azure_2023.csv", Options(time_unit="ms"), "time_unit"),
        ("azure_2023.csv", Options(block_size=16), "block_size"),
        ("own.csv", Options(characters_per_token=4), "characters_per_token"),
        ("mooncake.jsonl", Options(turns="all"), "turns"),
        ("sharegpt.json", Options(characters_per_token=4, result=1), "result"),
    ],
)
def test_an_option_that_says_nothing_of_a_format_is_refused(name: str, options: Options, key: str) -> None:
    with pytest.raises(ScenarioError, match=rf"workload.trace.{key}: says nothing of .*; take it out"):
        read(name, options)


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl", "burstgpt.csv", "mooncake.jsonl", "bailian.jsonl"])
def test_any_clock_may_tick_otherwise(name: str) -> None:
    seconds, micros = (read(name, Options(time_unit=unit)).arrival for unit in ("s", "us"))
    np.testing.assert_allclose(micros * 1e6, seconds)


@pytest.mark.parametrize("name", FORMAT_OF)
def test_a_converted_sample_is_the_sample(tmp_path: Path, name: str) -> None:
    trace = read(name)
    suffixes = ("jsonl",) if trace.prefix is not None else ("csv", "jsonl", "parquet")
    for suffix in suffixes:
        write_trace(trace, tmp_path / f"own.{suffix}")
        again = read_trace(tmp_path / f"own.{suffix}", needs_arrival=None)
        np.testing.assert_array_equal(again.arrival, np.round(trace.arrival, 9))
        for column in ("input_len", "output_len", "max_tokens", "class_name", "session"):
            np.testing.assert_array_equal(getattr(again, column), getattr(trace, column), column)
        np.testing.assert_allclose(again.think, trace.think)
        assert again.input_counted_by == trace.input_counted_by
        if trace.prefix is not None and again.prefix is not None:
            np.testing.assert_array_equal(ideal_hits(again.prefix), ideal_hits(trace.prefix))
            np.testing.assert_array_equal(again.prefix.known, trace.prefix.known)


def test_what_is_stated_wrong_is_set_right() -> None:
    with pytest.raises(ScenarioError, match="the file looks like format: burstgpt"):
        read_trace(SAMPLES / "burstgpt.csv", "azure")
    with pytest.raises(ScenarioError, match="the file looks like format: mooncake"):
        read_trace(SAMPLES / "mooncake.jsonl", "jsonl")


@pytest.mark.parametrize("path", sorted(SHARED.glob("*")) or [None], ids=lambda path: path and path.name)
def test_public_traces_are_read_as_they_are(path: Path | None) -> None:
    if path is None:
        pytest.skip("no public traces at hand")
    if "chunk-0" in path.name:
        with pytest.raises(ScenarioError, match="put its other file"):
            read_trace(path)
        return
    trace = read_trace(path, needs_arrival=None)
    assert trace.skipped_rows == 0
    assert len(trace) >= 3
