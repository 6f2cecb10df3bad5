"""Requests whose prompts begin with another's text, as tokens and as columns: what a prefix cache is tested on."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from simserve.workload.columns import Workload

Token = tuple[str, int]
"""A stream and a position in it: two streams never agree."""


class Text(NamedTuple):
    """A request to be: its own part of the prompt, its answer, and whose text its prompt begins with."""

    own: int
    output: int
    parent: int | None
    """How many rows before, of those that there are."""
    waits: bool
    """Whether it is sent only after the parent's answer."""
    group: int | None
    prefix: int
    whole: bool
    """Whether the prompt has all of the parent's text, or only so much of it as `prefix` says."""


texts = st.builds(
    Text,
    own=st.integers(1, 9),
    output=st.integers(1, 9),
    parent=st.none() | st.integers(1, 2),
    waits=st.booleans(),
    group=st.none() | st.integers(0, 1),
    prefix=st.integers(1, 9),
    whole=st.booleans(),
)


def parent_of(specs: list[Text], row: int) -> int | None:
    back = specs[row].parent
    return None if back is None or row == 0 else max(0, row - back)


def group_of(spec: Text, row: int) -> int:
    return -1 if spec.group is None or (spec.parent is not None and row > 0) else spec.group


def prompts_of(specs: list[Text]) -> Iterator[list[Token]]:
    """The tokens of each prompt."""
    prompts: list[list[Token]] = []
    for row, spec in enumerate(specs):
        parent = parent_of(specs, row)
        head: list[Token] = []
        if parent is not None:
            head = list(prompts[parent])
            head += [(f"own/{parent}", len(head) + index) for index in range(specs[parent].output)]
        elif group_of(spec, row) >= 0:
            head = [(f"group/{spec.group}", index) for index in range(spec.prefix)]
        if parent is not None and not (spec.whole or spec.waits):
            prompts.append(head[: spec.prefix])
        else:
            prompts.append(head + [(f"own/{row}", len(head) + index) for index in range(spec.own)])
    yield from prompts


def workload_of(specs: list[Text], prompts: list[list[Token]]) -> Workload:
    """The same as columns."""
    rows = range(len(specs))
    parents = [parent_of(specs, row) for row in rows]
    nothing = np.zeros(len(specs), dtype=np.int64)
    output_len = np.array([spec.output for spec in specs])
    return Workload(
        arrival=np.array([-1 if specs[row].waits and parents[row] is not None else row for row in rows]),
        input_len=np.array([len(prompt) for prompt in prompts]),
        output_len=output_len,
        max_tokens=output_len,
        priority=nothing,
        class_index=nothing,
        class_names=("default",),
        prefix_group=np.array([group_of(spec, row) for row, spec in enumerate(specs)]),
        prefix_len=np.array([spec.prefix for spec in specs]),
        session=nothing - 1,
        turn=nothing,
        parent=np.array([-1 if parent is None else parent for parent in parents]),
        think=nothing,
    )


def random_text(random: Random) -> Text:
    lengths = [random.randint(1, 9) for _ in range(3)]
    parent, group = random.choice([None, 1, 2]), random.choice([None, 0, 1])
    return Text(lengths[0], lengths[1], parent, random.random() < 0.5, group, lengths[2], random.random() < 0.5)
