"""Bad traces: one clear error each that names place, value and remedy; exit code 2; nothing left behind."""

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simserve.cli import app
from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.workload.formats import source as source_file
from simserve.workload.formats.registry import FORMATS
from simserve.workload.formats.table import Options
from simserve.workload.traces import read_trace

SAMPLES = Path(__file__).parent / "data" / "traces"
HEADER = "arrival,input_len,output_len\n"
RUN = "model: llama-3.1-8b\nworkload: {trace: {file: TRACE}}\ncluster: {gpu: h100-sxm-80gb}\n"
SCALARS = '{"timestamp": 5, "input_length": 600, "output_length": 3'


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def raw(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def bench(**changes: object) -> Callable[[Path], object]:
    result = {"start_times": [1.0, 2.0], "input_lens": [10, 20], "output_lens": [1, 2], "duration": 3.0}
    return text(json.dumps(result | changes))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (lambda path: None, r"no such file"),
    "a folder": (lambda path: path.mkdir(), r"no such file|is not a regular file"),
    "a pipe": (os.mkfifo, r"no such file|is not a regular file"),
    "empty": (text(""), r"is empty"),
    "blank": (text(" \n\n "), r"is empty"),
    "a header alone": (text(HEADER), r"has no rows"),
    "bytes": (raw(b"arrival,input_len\n\xff\xfe1,2\n"), r"byte 0xff is not utf-8 text; save it as UTF-8"),
    "an image": (raw(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4), r"is not utf-8 text|is no trace that is known"),
    "gzip cut short": (raw(gzip.compress(HEADER.encode() * 99)[:40]), r"cannot be read as a trace: .*end"),
    "gzip of nothing known": (raw(gzip.compress(b"a,b\n1,2\n")), r"is no trace that is known, but CSV .* a, b; known"),
    "zstd cut short": (raw(pa.compress(HEADER.encode() * 99, codec="zstd", asbytes=True)[:30]), r"cannot be read"),
    "parquet cut short": (raw(b"PAR1" + b"\0" * 50), r"cannot be read as parquet"),
    "parquet of something else": (
        lambda path: pq.write_table(pa.table({"a": [1]}), path),
        r"has columns a; a trace needs input_len and output_len",
    ),
    "columns of nobody": (text("when,what\n1,2\n"), r"is no trace that is known, but CSV .* when, what; known formats"),
    "a misspelt column": (text("arrival,input_len,output_lenn\n1,2,3\n"), r"line 1: unknown column 'output_lenn'; did"),
    "a column twice": (
        text("arrival,input_len,output_len,arrival\n1,2,3,4\n"),
        r"line 1: .* a column twice: 'arrival'",
    ),
    "too few fields": (text(HEADER + "1,2\n"), r"line 2: the row has 2 fields, the header has 3; correct it, or leave"),
    "a word for a time": (text(HEADER + "soon,2,3\n"), r"line 2: arrival 'soon' is not a time >= 0; correct it, or"),
    "a decimal comma": (
        text("arrival;input_len;output_len\n1,5;2;3\n"),
        r"line 2: arrival '1,5' is not a time >= 0 \(a decimal comma\? write a point\)",
    ),
    "a negative time": (text(HEADER + "-1,2,3\n"), r"line 2: arrival '-1' is not a time >= 0"),
    "no tokens": (text(HEADER + "1,0,3\n"), r"line 2: input_len '0' is not a whole number of tokens from 1 to 2147"),
    "half a token": (text(HEADER + "1,2,3.5\n"), r"line 2: output_len '3.5' is not a whole number of tokens"),
    "an endless field": (
        text(HEADER + "1,2," + "3" * 200_000 + "\n"),
        r"line 2: cannot be read as a row: field larger",
    ),
    "an endless line": (text("a" * 2_000_000), r"line 1: is longer than 1,048,576 characters"),
    "lengths without times": (
        text("num_prefill_tokens,num_decode_tokens\n1,2\n"),
        r"has no arrival times: state workload.arrivals beside the trace, for example {process: poisson",
    ),
    "a year that no clock knows": (
        text("TIMESTAMP,ContextTokens,GeneratedTokens\n9999-01-01 00:00:00,1,2\n"),
        r"line 2: TIMESTAMP '9999-01-01 00:00:00' is not a time",
    ),
    "half a line of JSON": (text('{"arrival": 1, "input_len": 2'), r"line 1: is not JSON: .*; is the file whole\?"),
    "a number of 5,000 digits": (
        text('{"arrival": 0, "input_len": 5, "output_len": 5}\n{"arrival": ' + "9" * 5000 + "}\n"),
        r"line 2: the row is not JSON: Exceeds the limit",
    ),
    "JSON of nobody": (text('{"colour": "red"}\n{"colour": "blue"}\n'), r"is no trace .* JSON lines .* colour; known"),
    "deep JSON": (text("[" * 100_000), r"is not JSON|too deep"),
    "a list of numbers": (text("[1, 2, 3]"), r"is no trace that is known"),
    "too many hash_ids": (
        text("".join(f'{SCALARS}, "hash_ids": {ids}}}\n' for ids in [[1, 2]] * 20 + [[1, 2, 3]])),
        r"line 21: the row has 3 hash_ids for 600 tokens, blocks being of 512 tokens",
    ),
    "hash_ids of no size": (
        text(f'{SCALARS}, "hash_ids": [1, 2]}}\n{SCALARS}, "hash_ids": [1, 2, 3, 4, 5, 6, 7]}}\n'),
        r"hash_ids fit no size of block .*state workload.trace.block_size",
    ),
    "hash_ids that are none": (text(f'{SCALARS}, "hash_ids": "1 2"}}\n'), r"line 1: the row has hash_ids that are not"),
    "errors that are a number": (bench(errors=5), r"has no list `errors`"),
    "a list cut short": (bench(output_lens=[1]), r"1 `output_lens` for 2 `input_lens`; the file is not whole"),
    "a result of nothing": (text('{"input_lens": [], "output_lens": [], "start_times": []}'), r"has no rows"),
    "nothing but failures": (
        bench(output_lens=[0, 0]),
        r"all of the 2 rows are bad; the first: request 0: .*no output",
    ),
    "totals that cannot be": (
        text('{"completed": 9, "total_input_tokens": 5, "total_output_tokens": 100}'),
        r"neither lists over the requests nor totals; run the benchmark with --save-detailed",
    ),
    "a summary": (text((SAMPLES / "profile_export_aiperf.json").read_text()), r"take profile_export.jsonl"),
    "texts": (text((SAMPLES / "sharegpt.json").read_text()), r"state one of workload.trace.tokenizer .*characters"),
    "windows that go back": (text("600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n"), r"put its other file|sort the file by time"),
    "a time beyond the clock": (
        text(HEADER + "1e9,2,3\n"),
        r"line 2: comes after 1e\+09 s, but the clock ends .* workload.trace.limit",
    ),
}


@pytest.mark.parametrize(("make", "complaint"), BAD.values(), ids=BAD)
def test_a_bad_trace_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("trace"))
    Path("s.yaml").write_text(RUN.replace("TRACE", "trace"))
    before = sorted(Path.cwd().rglob("*"))
    done = CliRunner().invoke(app, ["run", "s.yaml", "-o", "out"], catch_exceptions=False)
    said = re.sub(r"\s+", " ", done.stderr)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert said.count("error:") == 1
    assert "Traceback" not in said
    assert re.search(complaint, said), said
    assert "trace" in said, "the file is named"
    assert sorted(Path.cwd().rglob("*")) == before


@pytest.mark.parametrize(
    "verb", [["inspect", "trace"], ["convert", "trace", "to.csv"], ["fit", "trace", "-o", "to.yaml"]]
)
@pytest.mark.parametrize("kind", ["no file", "a pipe", "empty", "bytes", "columns of nobody", "deep JSON", "texts"])
def test_every_verb_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str], kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    BAD[kind][0](Path("trace"))
    before = sorted(Path.cwd().rglob("*"))
    done = CliRunner().invoke(app, ["trace", *verb], catch_exceptions=False)
    assert done.exit_code == 2
    assert re.search(r"error: .*(trace)", done.stderr, re.DOTALL)
    assert done.stdout == ""
    assert sorted(Path.cwd().rglob("*")) == before


def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.csv"
    path.write_bytes(gzip.compress((HEADER + "1,1,1\n" * 400_000).encode()))
    assert path.stat().st_size < 10_000
    with pytest.raises(ScenarioError, match=r"bomb.csv: is more than 0 GiB when unpacked; split it"):
        read_trace(path)
    assert len(read_trace(path, limit=10)) == 10


def test_a_trace_beyond_all_bounds_is_taken_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simserve.workload.formats.columns.MOST_ROWS", 100)
    path = tmp_path / "long.csv"
    path.write_text(HEADER + "1,1,1\n" * 101)
    with pytest.raises(ScenarioError, match=r"more than 100 rows; take a part of it with workload.trace.limit"):
        read_trace(path)
    assert len(read_trace(path, offset=50, limit=100)) == 51


# Fuzz: whatever the bytes, a trace or one error


FUZZED = [path.read_bytes() for path in sorted(SAMPLES.iterdir()) if path.stat().st_size < 3000]
TEXTS = Options(characters_per_token=4)


def reads_or_refuses(path: Path, form: TraceFormat | None) -> None:
    for options in (Options(), TEXTS):
        for skip in (False, True):
            try:
                trace = read_trace(path, form, needs_arrival=None, skip_bad_rows=skip, options=options)
            except ScenarioError as error:
                is_placed = str(path) in str(error) or "workload.trace." in str(error)
                assert is_placed
            else:
                assert len(trace) > 0
                assert trace.report is not None
                assert trace.report.rows == len(trace) + trace.report.left_out
                assert (trace.input_len >= 1).all()
                assert (trace.output_len >= 1).all()


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A sample with bytes changed, taken out, put in or repeated."""
    data = bytearray(draw(st.sampled_from(FUZZED)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["change", "cut", "insert", "repeat", "end"])):
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "insert":
                word = draw(
                    st.binary(max_size=8)
                    | st.sampled_from([b"\n", b",", b'"', b"null", b"[]", b"{}", b"-1", b"1e400", b"NaN", b"\\ud800"])
                )
                data[at:at] = word
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 60))]
            case "end":
                del data[at:]
    return bytes(data)


@given(spoiled(), st.sampled_from([None, None, *FORMATS]))
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_spoiled_samples_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, form: TraceFormat | None
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "trace"
    path.write_bytes(data)
    reads_or_refuses(path, form)


@given(st.binary(max_size=400), st.sampled_from([None, *FORMATS]))
@example(b"\x1f\x8b\x08", None)
@example(b"\x28\xb5\x2f\xfd", "csv")
@example(b"PAR1PAR1", "parquet")
@example(b"\xff\xfe{", "jsonl")
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, form: TraceFormat | None
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "trace"
    path.write_bytes(data)
    reads_or_refuses(path, form)


KEYS = (
    *[
        "arrival",
        "timestamp",
        "input_len",
        "output_len",
        "input_length",
        "output_length",
        "hash_ids",
        "prefix",
        "session_id",
        "delay",
        "input",
    ],
    *[
        "metadata",
        "metrics",
        "benchmarks",
        "requests",
        "successful",
        "conversations",
        "input_lens",
        "output_lens",
        "start_times",
        "errors",
    ],
    *["completed", "start_time", "end_time", "info", "0", "input_tokens", "output_tokens"],
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)


@given(VALUES, st.sampled_from([None, *FORMATS]))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: object, form: TraceFormat | None
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "trace"
    path.write_text(json.dumps(value) + "\n")
    reads_or_refuses(path, form)
