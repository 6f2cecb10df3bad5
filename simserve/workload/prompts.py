"""Prompts: what requests share. Groups of requests begin with the same text, a system prompt for example.

The shared text is a part of the prompt, or, where it `adds`, comes on top of the input length.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.workload import WorkloadSpec
from simserve.workload.streams import random_stream

IntArray = NDArray[np.int64]


class Prefixes(NamedTuple):
    """Group (-1 for none) and shared length in tokens of each prompt, and how much of that comes on top of it."""

    group: IntArray
    length: IntArray
    added: IntArray


def check_prefixes(length: IntArray, input_len: IntArray) -> None:
    """Refuse prompts that are shorter than what they are to begin with.

    Raises:
        ScenarioError: there are such prompts; the message counts them.
    """
    short = input_len < length
    if short.any():
        first = int(np.flatnonzero(short)[0])
        raise ScenarioError(
            f"workload.shared_prefix: length {length[first]} is longer than {int(short.sum())} of {len(short)} prompts "
            f"(the shortest has {int(input_len[short].min())} tokens); make it shorter, or say adds: true for a prefix "
            "on top of the prompts"
        )


def draw_prefixes(workload: WorkloadSpec, class_index: IntArray, seed: int) -> Prefixes:
    """Shared beginning of each prompt.

    Each group is as likely as any other. Classes without a `shared_prefix` of their own share the groups of the
    workload; a class that has one has groups that no other class uses.
    """
    group = np.full(len(class_index), -1, dtype=np.int64)
    length, added = np.zeros((2, len(class_index)), dtype=np.int64)
    own = [spec.shared_prefix for spec in workload.classes]
    common = np.isin(class_index, [index for index, prefix in enumerate(own) if prefix is not None], invert=True)
    sharers = [("", workload.shared_prefix, common)]
    sharers += [(f"/{workload.classes[index].name}", prefix, class_index == index) for index, prefix in enumerate(own)]
    first_group = 0
    for name, prefix, rows in sharers:
        if prefix is not None:
            rng = random_stream(seed, f"shared_prefix{name}")
            group[rows] = first_group + rng.integers(0, prefix.groups, size=int(np.count_nonzero(rows)))
            length[rows] = prefix.length
            added[rows] = prefix.length * prefix.adds
            first_group += prefix.groups
    return Prefixes(group, length, added)
