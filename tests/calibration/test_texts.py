"""Prompts as tokens share what the workload says they share, and nothing else."""

import numpy as np
import pytest
from scenario_text import scenario

from calibration.engine.texts import Texts
from simserve.workload.workload import build_workload


def test_prompts_of_a_group_begin_alike() -> None:
    group = "workload.shared_prefix={groups: 2, length: 30, adds: true}"
    lengths = "workload.input={distribution: uniform, min: 5, max: 60}"
    workload = build_workload(scenario(group, lengths, "workload.num_requests=40"))
    texts = Texts(workload, vocab_size=50_000, seed=3)
    prompts = [texts.prompt(row) for row in range(40)]
    assert [len(prompt) for prompt in prompts] == workload.input_len.tolist()
    for row, other in ((0, row) for row in range(1, 40)):
        same = np.argmin([a == b for a, b in zip(prompts[row], prompts[other], strict=False)] + [False])
        together = workload.prefix_group[row] == workload.prefix_group[other]
        assert same == (min(30, len(prompts[row]), len(prompts[other])) if together else 0)
    assert prompts == [texts.prompt(row) for row in range(40)]
    assert prompts[1] != Texts(workload, vocab_size=50_000, seed=4).prompt(1)


def test_a_turn_begins_with_what_was_said() -> None:
    chats = "workload.sessions={turns: 3, think_time: 1 s}"
    workload = build_workload(scenario(chats, "workload.input=6", "workload.output=4", "workload.num_requests=6"))
    texts = Texts(workload, vocab_size=1000)
    child = int(np.flatnonzero(workload.parent >= 0)[0])
    said = [*texts.prompt(int(workload.parent[child])), 7, 8, 9, 10]
    prompt = texts.prompt(child, said)
    assert prompt[:10] == said
    assert len(prompt) == workload.input_len[child]
    with pytest.raises(AssertionError, match="parent"):
        texts.prompt(child)
