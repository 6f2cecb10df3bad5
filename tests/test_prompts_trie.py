"""The prefix trie from end to end: a request hits the longest prefix that its replica has seen, token by token."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_text import scenario

from simserve.engine.prefix import ENDLESS, Branch, extend
from simserve.simulation import simulate
from simserve.spec.result import Result
from simserve.workload.columns import Workload
from simserve.workload.workload import build_workload

Token = tuple[str, int]


def texts(workload: Workload) -> Iterator[tuple[list[Token], list[Token]]]:
    """Prompt and answer of each request as tokens; two streams never agree in a token."""
    spoken: list[list[Token]] = []
    for row in range(len(workload)):
        parent, group = int(workload.parent[row]), int(workload.prefix_group[row])
        head = spoken[parent] if parent >= 0 else []
        if group >= 0:
            head = [(f"group {group}", index) for index in range(int(workload.prefix_len[row]))]
        size, output_len = int(workload.input_len[row]), int(workload.output_len[row])
        own = [(f"own {row}", index) for index in range(len(head), size + output_len)]
        spoken.append(head + own)
        yield spoken[row][:size], spoken[row][size:]


def expected_hits(result: Result, workload: Workload) -> list[int]:
    """Tokens of whole blocks that an earlier text on the same replica has in common with each prompt, but its last.

    For requests that are served one after the other in a pool that never runs out. The last token of an answer has no
    KV, since it was never an input.
    """
    block_size: int = result.scenario.engine.block_size
    hits = []
    cached: dict[int, set[tuple[Token, ...]]] = {}
    for row, (prompt, answer) in enumerate(texts(workload)):
        known = cached.setdefault(int(result.requests["replica"][row]), set())
        end = block_size
        while end < len(prompt) and tuple(prompt[:end]) in known:
            end += block_size
        hits.append(end - block_size)
        computed = [*prompt, *answer][:-1]
        known |= {tuple(computed[:end]) for end in range(block_size, len(computed) + 1, block_size)}
    return hits


QUIET = (
    "workload.num_requests=24",
    "workload.arrivals={process: constant, rate: 0.1}",
    "workload.input={distribution: uniform, min: 1, max: 60}",
    "workload.output={distribution: uniform, min: 1, max: 40}",
    "engine.max_model_len=1024",
)
SHARED = {
    "chats": ("workload.sessions={turns: {distribution: uniform, min: 1, max: 4}}", "workload.arrivals.rate=0.05"),
    "groups": ("workload.shared_prefix={groups: 3, length: 37, adds: true}",),
    "chats in groups": (
        "workload.sessions={turns: 3, first_input: 40}",
        "workload.shared_prefix={groups: 2, length: 21, adds: true}",
        "workload.arrivals.rate=0.05",
    ),
    "nothing": (),
}


@given(
    st.sampled_from(sorted(SHARED)),
    st.sampled_from([1, 2, 4, 16]),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 99),
    st.sampled_from([16, 2048]),
)
@settings(max_examples=50)
def test_hits_are_the_longest_common_prefix(
    kind: str, block_size: int, replicas: int, asynchronous: bool, seed: int, budget: int
) -> None:
    question = scenario(
        *QUIET, *SHARED[kind], f"engine.block_size={block_size}", f"cluster.replicas={replicas}", f"seed={seed}",
        f"engine.async_scheduling={str(asynchronous).lower()}", f"engine.max_num_batched_tokens={budget}",
        "engine.max_num_seqs=8",
    )  # fmt: skip
    result, workload = simulate(question), build_workload(question)
    in_turn = np.argsort(result.requests["scheduled"], kind="stable")
    assert np.all(np.diff(in_turn) > 0), "served one after the other"
    assert np.all(result.requests["scheduled"][1:] >= result.requests["finish"][:-1] - 1e-3)
    assert result.requests["cached_len"].tolist() == expected_hits(result, workload)


def test_the_property_above_sees_hits() -> None:
    for kind in ("chats", "groups", "chats in groups"):
        assert simulate(scenario(*QUIET, *SHARED[kind])).requests["cached_len"].sum() > 100


@pytest.mark.parametrize(("num_tokens", "end"), [(31, 1), (32, 2), (33, 2), (5, 0)])
def test_a_block_belongs_to_the_text_of_its_last_token(num_tokens: int, end: int) -> None:
    """16 to a block: of a conversation of 33 tokens a child shares 2 blocks; the third has tokens of its own."""
    parent, own = Branch(), Branch()
    assert extend(((parent, ENDLESS),), num_tokens, 16, own) == ((parent, end), (own, ENDLESS))


def test_a_child_keeps_the_grandparents_blocks() -> None:
    oldest, parent, own = Branch(), Branch(), Branch()
    path = ((oldest, 3), (parent, ENDLESS))
    assert extend(path, 100, 16, own) == ((oldest, 3), (parent, 6), (own, ENDLESS))
    assert extend(path, 40, 16, own) == ((oldest, 2), (own, ENDLESS))
