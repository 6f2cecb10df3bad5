"""Shared prefixes: who shares with whom, and how much."""

import math

import numpy as np
import pytest
from scenario_text import scenario

from simserve.spec.errors import ScenarioError
from simserve.workload.workload import Workload, build_workload


def build(*overrides: str) -> Workload:
    return build_workload(scenario(*overrides))


def test_no_prefix_no_group() -> None:
    workload = build()
    assert set(workload.prefix_group.tolist()) == {-1}
    assert not workload.prefix_len.any()


LENGTHS = "workload.input={distribution: uniform, min: 100, max: 800}"


@pytest.mark.parametrize("length", [1, 100])
def test_a_prefix_is_counted_inside_the_input(length: int) -> None:
    workload = build(LENGTHS, f"workload.shared_prefix={{groups: 3, length: {length}}}")
    assert set(workload.prefix_len.tolist()) == {length}
    np.testing.assert_array_equal(workload.input_len, build(LENGTHS).input_len)


@pytest.mark.parametrize("length", [1, 400, 3000])
@pytest.mark.parametrize("chats", [(), ("workload.sessions={turns: 3}",)])
def test_a_prefix_that_adds_comes_on_top_of_the_input(length: int, chats: tuple[str, ...]) -> None:
    """vLLM's --random-prefix-len. In a chat all later prompts have it, too, since they begin with the first."""
    workload = build(LENGTHS, *chats, f"workload.shared_prefix={{groups: 3, length: {length}, adds: true}}")
    np.testing.assert_array_equal(workload.input_len, build(LENGTHS, *chats).input_len + length)
    assert set(workload.prefix_len[workload.turn == 0].tolist()) == {length}


@pytest.mark.parametrize("chats", [(), ("workload.sessions={turns: 3}",)])
def test_prompts_shorter_than_their_prefix_are_counted_and_refused(chats: tuple[str, ...]) -> None:
    """They were all prefix: 97 % hits of prompts of 500 tokens for a prefix of 3,000 (faults.md)."""
    lengths = build(LENGTHS, *chats)
    first = lengths.input_len[lengths.turn == 0]
    short = int((first < 300).sum())
    message = f"length 300 is longer than {short} of {len(first)} prompts .the shortest has {first.min()} tokens.*adds"
    with pytest.raises(ScenarioError, match=message):
        build(LENGTHS, *chats, "workload.shared_prefix={groups: 1, length: 300}")


def test_every_group_is_as_likely_as_any_other() -> None:
    workload = build("workload.shared_prefix={groups: 5, length: 100}", "workload.num_requests=50000")
    counts = np.bincount(workload.prefix_group)
    assert len(counts) == 5
    assert np.all(np.abs(counts - 10_000) < 5 * math.sqrt(10_000))


def test_classes_share_the_groups_of_the_workload_and_keep_their_own_to_themselves() -> None:
    workload = build(
        "workload.num_requests=3000",
        "workload.shared_prefix={groups: 2, length: 100}",
        "workload.classes=[{name: a, share: 0.4}, {name: b, share: 0.4},"
        " {name: c, share: 0.2, shared_prefix: {groups: 3, length: 300}}]",
    )
    groups = [set(workload.prefix_group[workload.class_index == index].tolist()) for index in range(3)]
    assert groups == [{0, 1}, {0, 1}, {2, 3, 4}]
    np.testing.assert_array_equal(workload.prefix_len, np.where(workload.class_index == 2, 300, 100))


def test_a_class_may_be_the_only_one_with_a_prefix() -> None:
    workload = build(
        "workload.classes=[{name: a, share: 0.5}, {name: b, share: 0.5, shared_prefix: {groups: 1, length: 300}}]"
    )
    np.testing.assert_array_equal(workload.prefix_group, np.where(workload.class_index == 1, 0, -1))


def test_in_a_chat_the_first_turn_has_the_prefix_and_later_ones_inherit_it() -> None:
    workload = build("workload.shared_prefix={groups: 4, length: 300}", "workload.sessions={turns: 3}")
    first = workload.turn == 0
    np.testing.assert_array_equal(workload.prefix_group >= 0, first)
    np.testing.assert_array_equal(workload.prefix_len, np.where(first, 300, 0))
    assert set(workload.prefix_group[first].tolist()) == {0, 1, 2, 3}
