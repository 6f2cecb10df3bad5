"""Traces: every format gives the same requests, and every kind of bad row is named with its place or counted."""

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.workload.formats.registry import FORMATS
from simserve.workload.trace_writer import convert_trace, write_trace
from simserve.workload.traces import Trace, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224671,879,55
"""

Rows = Sequence[tuple[float, int, int]]


def save(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def own(folder: Path, *rows: str, header: str = "arrival,input_len,output_len") -> Path:
    return save(folder, "\n".join((header, *rows)) + "\n")


def same(one: Trace, other: Trace) -> None:
    for name in ("arrival", "input_len", "output_len", "max_tokens", "class_name", "session", "think"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert (one.priority is None) == (other.priority is None)
    if one.priority is not None and other.priority is not None:
        np.testing.assert_array_equal(one.priority, other.priority)
    assert one.input_counted_by == other.input_counted_by
    assert (one.client_input_len is None) == (other.client_input_len is None)
    if one.client_input_len is not None and other.client_input_len is not None:
        np.testing.assert_array_equal(one.client_input_len, other.client_input_len)


# Formats


def test_azure_times_keep_all_seven_digits_and_start_at_the_first_request(tmp_path: Path) -> None:
    trace = read_trace(save(tmp_path, AZURE), "azure")
    np.testing.assert_array_equal(trace.arrival, [0.0, 4.314579, 4.5418771])
    np.testing.assert_array_equal(trace.input_len, [374, 396, 879])
    np.testing.assert_array_equal(trace.output_len, [44, 109, 55])
    np.testing.assert_array_equal(trace.max_tokens, trace.output_len)
    np.testing.assert_array_equal(trace.number, [2, 3, 4])


def test_azure_of_2024_has_time_zones(tmp_path: Path) -> None:
    text = AZURE.replace("46.6805900", "46.680590+00:00").replace("50.9951690", "50.995169+00:00")
    np.testing.assert_array_equal(read_trace(save(tmp_path, text), "azure", limit=2).arrival, [0.0, 4.314579])


def test_a_converted_trace_is_the_trace(tmp_path: Path) -> None:
    source = save(tmp_path, AZURE, "azure.csv")
    for name in ("own.csv", "own.jsonl"):
        convert_trace(source, tmp_path / name, "azure")
        same(read_trace(tmp_path / name, name.partition(".")[2]), read_trace(source, "azure"))


def test_our_csv_starts_at_the_start_of_the_run_and_names_its_columns_in_any_order(tmp_path: Path) -> None:
    path = own(tmp_path, "8,2.5,10,a", "9,3,20,b", header="input_len, arrival ,output_len,class")
    trace = read_trace(path)
    np.testing.assert_array_equal(trace.arrival, [2.5, 3.0])
    assert trace.class_name.tolist() == ["a", "b"]


def test_a_gzipped_trace_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfarrival,input_len,output_len\r\n1,2,3\r\n"))
    assert read_trace(path).input_len.tolist() == [2]


def test_json_lines_with_and_without_a_header(tmp_path: Path) -> None:
    first = '{"arrival": 0.5, "input_len": 10, "output_len": 2}'
    rows = first + '\n\n{"arrival": 1, "input_len": 4, "output_len": 3, "priority": 2}\n'
    plain = read_trace(save(tmp_path, rows), "jsonl")
    headed = read_trace(save(tmp_path, '{"format": "simserve-trace"}\n' + rows), "jsonl")
    same(plain, headed)
    assert plain.priority is not None
    np.testing.assert_array_equal(plain.priority, [0, 2])
    np.testing.assert_array_equal(headed.number, [2, 4])


names = st.text("abc,\"' \nµ", max_size=3).map(str.strip)
rows = st.lists(
    st.tuples(
        st.integers(0, 10**13),
        st.integers(1, 10**6),
        st.integers(1, 10**6),
        st.integers(0, 9),
        names,
        st.integers(-5, 5),
        st.just(-1) | st.integers(1, 10**6),
    ),
    min_size=1,
    max_size=20,
)


@given(rows, st.sampled_from(["csv", "jsonl"]))
def test_what_is_written_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int, int, str, int, int]], format: str
) -> None:
    columns = list(zip(*sorted(rows), strict=True))
    trace = Trace(
        number=np.arange(len(rows)),
        arrival=np.array(columns[0]) / 1e9,
        input_len=np.array(columns[1]),
        output_len=np.array(columns[2]),
        max_tokens=np.array(columns[2]) + np.array(columns[3]),
        priority=np.array(columns[5]),
        class_name=np.array(columns[4], dtype=np.str_),
        session=np.full(len(rows), "", dtype=np.str_),
        think=np.full(len(rows), np.nan),
        skipped_rows=0,
        client_input_len=np.array(columns[6]) if max(columns[6]) > 0 else None,
    )
    path = tmp_path_factory.mktemp("trace") / f"trace.{format}"
    write_trace(trace, path)
    same(read_trace(path, format), trace)


def test_nothing_is_written_over_and_nothing_half_written(tmp_path: Path) -> None:
    source, target = save(tmp_path, AZURE, "azure.csv"), save(tmp_path, "mine", "own.csv")
    with pytest.raises(ScenarioError, match=r"own.csv: is there already"):
        convert_trace(source, target, "azure")
    assert target.read_text() == "mine"
    convert_trace(source, target, "azure", force=True)
    with target.open() as file:
        assert list(csv.reader(file))[1] == ["0.0", "374", "44"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["azure.csv", "own.csv"]


# The detailed result of `vllm bench serve`


def bench(folder: Path, **changes: object) -> Path:
    result: dict[str, object] = {
        "start_times": [2531.5, 2532.0, 2531.75, 0.0],
        "input_lens": [10, 20, 30, 40],
        "output_lens": [1, 2, 3, 0],
        "errors": ["", "", "", "Traceback\nTimeoutError: too slow\n"],
        "ttfts": [0.1, 0.1, 0.1, 0.0],
    }
    return save(folder, json.dumps(result | changes), "bench.json")


def test_a_benchmark_is_put_in_order_of_time_from_its_first_request(tmp_path: Path) -> None:
    trace = read_trace(bench(tmp_path), "vllm_bench", skip_bad_rows=True)
    np.testing.assert_array_equal(trace.arrival, [0.0, 0.25, 0.5])
    np.testing.assert_array_equal(trace.input_len, [10, 30, 20])
    np.testing.assert_array_equal(trace.output_len, [1, 3, 2])
    np.testing.assert_array_equal(trace.number, [0, 2, 1])
    assert trace.skipped_rows == 1


def test_a_failed_request_of_a_benchmark_is_left_out_and_named(tmp_path: Path) -> None:
    trace = read_trace(bench(tmp_path), "vllm_bench")
    assert trace.skipped_rows == 1
    assert trace.report is not None
    assert trace.report.first_left_out == "request 3: the request failed: TimeoutError: too slow"
    trace = read_trace(bench(tmp_path, errors=["", "", "", ""]), "vllm_bench")
    assert trace.report is not None
    assert trace.report.first_left_out == "request 3: the request failed: no output"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"start_times": None}, "no arrival times: state workload.arrivals"),
        ({"input_lens": None}, "no list `input_lens`.*--save-detailed"),
        ({"input_lens": [1]}, "4 `output_lens` for 1 `input_lens`"),
        ({"errors": [""]}, "1 `errors` for 4 `input_lens`"),
        ({"output_lens": [1, None, 3, 4], "errors": None}, "request 1: output_lens is missing"),
        (
            {"start_times": [1.0, None, 3.0, 4.0], "output_lens": [1, 2, 3, 4], "errors": None},
            "request 1: start_times is missing",
        ),
    ],
)
def test_an_incomplete_benchmark_is_refused(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        read_trace(bench(tmp_path, **changes), "vllm_bench")


# Limit, offset, speed


@given(st.integers(0, 12), st.integers(1, 12), st.sampled_from([0.5, 1.0, 4.0]))
def test_limit_and_offset_take_a_window_whose_clock_starts_with_it(
    tmp_path_factory: pytest.TempPathFactory, offset: int, limit: int, speedup: float
) -> None:
    path = own(tmp_path_factory.mktemp("trace"), *(f"{row + 5},{row + 1},{row + 1}" for row in range(10)))
    if offset >= 10:
        with pytest.raises(ScenarioError, match=f"no rows after offset {offset}"):
            read_trace(path, offset=offset, limit=limit)
        return
    trace = read_trace(path, offset=offset, limit=limit, speedup=speedup)
    np.testing.assert_array_equal(trace.input_len, range(offset + 1, min(offset + limit, 10) + 1))
    first = 0 if offset else 5
    np.testing.assert_allclose(trace.arrival, (np.arange(len(trace)) + first) / speedup)


def test_rows_outside_the_window_are_not_judged(tmp_path: Path) -> None:
    path = own(tmp_path, "0,-1,1", "1,2,3", "2,x,1")
    assert read_trace(path, offset=1, limit=1).input_len.tolist() == [2]


# Bad rows

BAD_ROWS = {
    "missing time": (",5,5", r"arrival is missing"),
    "a word for a time": ("soon,5,5", r"arrival 'soon' is not a time >= 0"),
    "nan": ("nan,5,5", r"arrival 'nan' is not a time"),
    "infinite": ("inf,5,5", r"arrival 'inf' is not a time"),
    "negative time": ("-1,5,5", r"arrival '-1' is not a time >= 0"),
    "negative length": ("1,-5,5", r"input_len '-5' is not a whole number of tokens from 1 to"),
    "empty prompt": ("1,0,5", r"input_len '0' is not a whole number of tokens from 1 to"),
    "no answer": ("1,5,0", r"output_len '0' is not a whole number of tokens from 1 to"),
    "a fraction": ("1,5,2.5", r"output_len '2.5' is not a whole number of tokens from 1 to"),
    "missing length": ("1,,5", r"input_len is missing"),
    "absurd length": ("1,1e30,5", r"input_len '1e30' is not a whole number of tokens from 1 to"),
    "too few fields": ("1,5", r"the row has 2 fields, the header has 3"),
    "too many fields": ("1,5,5,5", r"the row has 4 fields, the header has 3"),
}


@pytest.mark.parametrize(("row", "complaint"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_an_error_with_its_line_or_left_out_and_counted(tmp_path: Path, row: str, complaint: str) -> None:
    path = own(tmp_path, "1,2,3", row, "4,5,6")
    with pytest.raises(
        ScenarioError, match=rf"{path}, line 3: {complaint}.*; correct it, or leave .*skip_bad_rows: true"
    ):
        read_trace(path)
    trace = read_trace(path, skip_bad_rows=True)
    np.testing.assert_array_equal(trace.arrival, [1, 4])
    np.testing.assert_array_equal(trace.number, [2, 4])
    assert trace.skipped_rows == 1


@given(st.lists(st.sampled_from([*(row for row, _ in BAD_ROWS.values()), "1,2,3"]), max_size=12))
def test_skipped_and_kept_rows_add_up(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    path = own(tmp_path_factory.mktemp("trace"), "1,2,3", *rows)
    trace = read_trace(path, skip_bad_rows=True)
    assert len(trace) == 1 + rows.count("1,2,3")
    assert len(trace) + trace.skipped_rows == 1 + len(rows)


def test_a_bad_row_does_not_make_later_ones_look_unsorted(tmp_path: Path) -> None:
    trace = read_trace(own(tmp_path, "1,2,3", "1000,2,-3", "4,5,6"), skip_bad_rows=True)
    np.testing.assert_array_equal(trace.arrival, [1, 4])


def test_the_first_bad_row_is_named_whatever_its_fault(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"line 3: arrival is missing"):
        read_trace(own(tmp_path, "1,2,3", ",2,3", "2,-3,3", "3,4"))


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    path = own(tmp_path, "1,2,3,a", "", '2,3,4,"b', 'c"', "3,4,x,d", header="arrival,input_len,output_len,class")
    with pytest.raises(ScenarioError, match=r"line 6: output_len 'x'"):
        read_trace(path)


def test_a_trace_of_bad_rows_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="all of the 2 rows are bad"):
        read_trace(own(tmp_path, "x,2,3", "y,2,3"), skip_bad_rows=True)


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("arrival,input_len", "no column 'output_len'"),
        ("arrival,input_length,output_len", "unknown column 'input_length'; did you mean 'input_len'?"),
        (
            "arrival,input_len,output_len,colour",
            "unknown column 'colour'; expected some of input_len, client_input_len, output_len, arrival",
        ),
        ("arrival,input_len,output_len,arrival", "names a column twice"),
        ("arrival,input_len,output_len,prefix", "a column 'prefix' needs JSON lines"),
        ("", "no column 'input_len'"),
    ],
)
def test_a_header_that_is_not_ours_is_refused(tmp_path: Path, header: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=f"line 1: .*{complaint}"):
        read_trace(own(tmp_path, "1,2,3", header=header), "csv")


def test_289_a_trace_without_times_needs_arrivals_beside_it(tmp_path: Path) -> None:
    """aisimulate#289."""
    path = own(tmp_path, "2,3", header="input_len,output_len")
    with pytest.raises(ScenarioError, match=r"has no arrival times: state workload.arrivals"):
        read_trace(path)
    assert read_trace(path, needs_arrival=False).input_len.tolist() == [2]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"arrival": 1, "input_len": 2', "line 2: the row is not JSON"),
        ("[1, 2, 3]", "line 2: the row is not a JSON object"),
        (f"[{'9' * 5000}]", "line 2: the row is not JSON: Exceeds the limit"),
        ("[" * 100_000, "line 2: the row is not JSON"),
        (
            '{"arrival": 1, "input_len": true, "output_len": 3}',
            "line 2: input_len True is not a whole number of tokens from 1 to",
        ),
        ('{"arrival": null, "input_len": 2, "output_len": 3}', "line 2: arrival is missing"),
        ('{"arrival": 1, "input_len": 2}', "line 2: output_len is missing"),
        (
            '{"arrival": 1, "input_len": 2, "output_len": NaN}',
            "line 2: output_len nan is not a whole number of tokens from 1 to",
        ),
        (
            '{"arrival": 1, "input_len": 2, "output_lenn": 3}',
            "line 2: unknown column 'output_lenn'; did you mean 'output_len'",
        ),
        (
            '{"arrival": 1, "input_len": 2, "output_len": 1, "max_tokens": 0}',
            "line 2: max_tokens 0 is not a whole number of at least output_len",
        ),
    ],
)
def test_a_bad_line_of_json_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = save(tmp_path, f'{{"arrival": 0, "input_len": 1, "output_len": 1}}\n{line}\n', "trace.jsonl")
    with pytest.raises(ScenarioError, match=complaint):
        read_trace(path, "jsonl")


def test_a_header_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"line 1: expected the header .*simserve-trace"):
        read_trace(save(tmp_path, '{"format": "other", "version": 3}\n'), "jsonl")


def test_azure_rows_without_a_date_are_named(tmp_path: Path) -> None:
    bad = AZURE.replace("2023-11-16 18:15:50.9951690", "yesterday")
    with pytest.raises(ScenarioError, match=r"line 3: TIMESTAMP 'yesterday' is not a time"):
        read_trace(save(tmp_path, bad), "azure")
    trace = read_trace(save(tmp_path, bad), "azure", skip_bad_rows=True)
    np.testing.assert_array_equal(trace.arrival, [0.0, 4.5418771])
    with pytest.raises(ScenarioError, match=r"line 2: TIMESTAMP is missing"):
        read_trace(save(tmp_path, AZURE.replace("2023-11-16 18:15:46.6805900", "")), "azure")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"arrival,input_len,output_len\n1,2,\xff\n"),
        lambda path: path.write_bytes(b""),
        lambda path: path.with_suffix(".gz").write_bytes(gzip.compress(b"arrival,input_len,output_len\n" * 99)[:30]),
    ],
    ids=["missing", "a folder", "not text", "empty", "cut"],
)
@pytest.mark.parametrize("format", [*FORMATS, None])
def test_a_file_that_is_no_trace_is_named(
    tmp_path: Path, spoil: Callable[[Path], object], format: TraceFormat | None
) -> None:
    path = tmp_path / "trace.csv"
    spoil(path)
    path = path.with_suffix(".gz") if path.with_suffix(".gz").exists() else path
    with pytest.raises(ScenarioError, match=str(path)):
        read_trace(path, format)
