"""Block hashes as identity of prompts: the same ids hit, token by token, whatever the engine's block size."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_text import scenario

from simserve.report.summary import summarize
from simserve.simulation import simulate
from simserve.workload.formats.table import Heads
from simserve.workload.prefix_ids import ideal_hits, prefix_ids, shared_text
from simserve.workload.recorded import trace_of
from simserve.workload.trace_writer import write_trace
from simserve.workload.traces import read_trace
from simserve.workload.workload import build_workload

MOONCAKE = Path(__file__).parents[2] / "shared" / "traces" / "mooncake_conversation_trace_first4000.jsonl"
QUIET = ("workload.num_requests=null", "workload.input=null", "workload.output=null", "engine.max_model_len=2048")

Pairs = list[tuple[int, int]]
Row = tuple[Pairs, int, int]


@st.composite
def prompts(draw: st.DrawFn) -> list[Row]:
    """Prompts that walk through a small tree of ids, each stretch some tokens long: pairs, input and output tokens."""
    rows = []
    for _ in range(draw(st.integers(2, 12))):
        ids = draw(st.lists(st.integers(0, 2), max_size=4))
        ends = np.cumsum([draw(st.sampled_from([5, 16, 16, 33])) for _ in ids]).tolist()
        own = draw(st.integers(0 if ends else 1, 40))
        rows.append((list(zip(ids, ends, strict=True)), (ends or [0])[-1] + own, draw(st.integers(1, 30))))
    return rows


def tokens(pairs: Pairs, input_len: int, output_len: int, row: int) -> list[object]:
    """The tokens of a prompt and its answer: those of a stretch are known by the ids up to it and by their place."""
    found: list[object] = []
    for place, (_, end) in enumerate(pairs):
        path = tuple(name for name, _ in pairs[: place + 1])
        found += [(path, index) for index in range(len(found), end)]
    return found + [("own", row, index) for index in range(len(found), input_len + output_len)]


def hits_by_hand(rows: list[Row], block_size: int) -> list[int]:
    """Tokens of whole blocks that an earlier text begins with, too, but for the last token of the prompt."""
    cached: set[tuple[object, ...]] = set()
    hits = []
    for row, (pairs, input_len, output_len) in enumerate(rows):
        text = tokens(pairs, input_len, output_len, row)
        end = block_size
        while end < input_len and tuple(text[:end]) in cached:
            end += block_size
        hits.append(end - block_size)
        computed = text[:-1]
        cached |= {tuple(computed[:end]) for end in range(block_size, len(computed) + 1, block_size)}
    return hits


@given(prompts(), st.sampled_from([1, 2, 8, 16, 64]), st.sampled_from([16, 2048]))
@settings(max_examples=60)
def test_hits_are_the_longest_beginning_that_was_said_before(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], block_size: int, budget: int
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text(
        "".join(
            json.dumps({"arrival": 10 * row, "input_len": length, "output_len": answer, "prefix": pairs}) + "\n"
            for row, (pairs, length, answer) in enumerate(rows)
        )
    )
    question = scenario(
        *QUIET, "workload.arrivals=null", f"workload.trace={{file: {path}}}", f"engine.block_size={block_size}",
        f"engine.max_num_batched_tokens={budget}", "engine.max_num_seqs=8",
    )  # fmt: skip
    result = simulate(question)
    assert result.requests["cached_len"].tolist() == hits_by_hand(rows, block_size)


@given(prompts())
def test_only_what_is_shared_is_kept_and_equal_users_are_one_stream(rows: list[Row]) -> None:
    heads = Heads(
        [[name for name, _ in pairs] for pairs, _, _ in rows], [[end for _, end in pairs] for pairs, _, _ in rows]
    )
    prefix = prefix_ids(heads)
    shared = shared_text(prefix)
    users = np.bincount(shared.streams) if len(shared.streams) else np.zeros(0)
    assert not np.any(users == 1), "what one prompt alone walks is its own text"
    for row in range(len(rows)):
        streams = shared.streams[shared.start[row] : shared.start[row + 1]]
        assert len(set(users[streams].tolist())) == len(streams), "each stream ends where fewer walk on"
    order = np.arange(len(rows))[::-1]
    back = prefix.take(order)
    assert [back.pairs(row) for row in range(len(rows))] == [prefix.pairs(row) for row in order]


@given(prompts())
def test_ideal_hits_are_those_of_single_tokens(rows: list[Row]) -> None:
    said: set[tuple[object, ...]] = set()
    expected = []
    for row, (pairs, _, _) in enumerate(rows):
        head = tokens(pairs, (pairs or [(0, 0)])[-1][1], 0, row)
        expected.append(max((end for end in range(len(head) + 1) if tuple(head[:end]) in said), default=0))
        said |= {tuple(head[:end]) for end in range(1, len(head) + 1)}
    heads = Heads(
        [[name for name, _ in pairs] for pairs, _, _ in rows], [[end for _, end in pairs] for pairs, _, _ in rows]
    )
    assert ideal_hits(prefix_ids(heads)).tolist() == expected


@pytest.mark.parametrize("kind", ["groups", "trace"])
def test_shared_text_survives_a_trip_through_a_file(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "source.jsonl"
    source.write_text(
        "".join(
            json.dumps(
                {"timestamp": 5000 * row, "input_length": 700, "output_length": 9, "hash_ids": [row % 3, 9 + row % 5]}
            )
            + "\n"
            for row in range(30)
        )
    )
    kinds = {
        "groups": ("workload.shared_prefix={groups: 3, length: 300}", "workload.arrivals.rate=0.1"),
        "trace": (*QUIET, "workload.arrivals=null", f"workload.trace={{file: {source}}}"),
    }
    question = scenario(*kinds[kind])
    write_trace(trace_of(build_workload(question)), tmp_path / "saved.jsonl")
    again = scenario(
        *QUIET,
        "workload.arrivals=null",
        "workload.shared_prefix=null",
        f"workload.trace={{file: {tmp_path}/saved.jsonl}}",
    )
    hits = [simulate(each).requests["cached_len"].tolist() for each in (question, again)]
    assert hits[0] == hits[1]
    assert sum(hits[0]) > 1000


def test_turns_of_a_session_with_ids_share_what_the_ids_say(tmp_path: Path) -> None:
    """A turn waits for the answer before it, and begins with the blocks that its ids name: not with the answer."""
    path = tmp_path / "trace.jsonl"
    rows = [
        {"session_id": "a", "timestamp": 0, "input_length": 1000, "output_length": 100, "hash_ids": [1, 2]},
        {"session_id": "a", "delay": 5000, "input_length": 1600, "output_length": 10, "hash_ids": [1, 3, 4, 5]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = simulate(scenario(*QUIET, "workload.arrivals=null", f"workload.trace={{file: {path}}}"))
    assert result.requests["cached_len"].tolist() == [0, 512]
    assert result.requests["arrival"][1] == pytest.approx(result.requests["finish"][0] + 5, abs=0.1)


def test_a_prefix_longer_than_its_prompt_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"arrival": 0, "input_len": 10, "output_len": 1, "prefix": [[1, 8], [2, 11]]}\n')
    with pytest.raises(ValueError, match="line 1: input_len 10 is less than the tokens of its prefix"):
        read_trace(path)


def test_mooncake_hits_what_its_ids_say_at_unlimited_cache() -> None:
    """Within 0.1 point of the rate counted from the ids: an id hits if it and all before it were there before."""
    if not MOONCAKE.exists():
        pytest.skip("the public trace is not at hand")
    seen: set[int] = set()
    hits = total = 0
    for line in MOONCAKE.read_text().splitlines():
        row = json.loads(line)
        blocks = next((number for number, name in enumerate(row["hash_ids"]) if name not in seen), len(row["hash_ids"]))
        hits += min(512 * blocks, row["input_length"])
        total += row["input_length"]
        seen |= {*row["hash_ids"]}
    question = scenario(
        *QUIET[:3], "workload.arrivals=null", f"workload.trace={{file: {MOONCAKE}}}",
        "cluster.gpu={base: h100-sxm-80gb, memory: 40 TB}", "engine.max_model_len=131072",
    )  # fmt: skip
    summary = summarize(simulate(question))
    assert summary["completed"] == 4000
    assert summary["prefix_cache_hit_rate"] == pytest.approx(hits / total, abs=0.001)
