"""Prompts: what requests share. Groups of requests begin with the same text, a system prompt for example.

The shared text counts inside the input length; a prompt that is not longer is all shared text.
"""

import numpy as np
from numpy.typing import NDArray

from simserve.spec.workload import WorkloadSpec
from simserve.workload.streams import random_stream

IntArray = NDArray[np.int64]


def draw_prefixes(workload: WorkloadSpec, class_index: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    """Group (-1 for none) and shared length in tokens of each prompt, where it is that long.

    Each group is as likely as any other. Classes without a `shared_prefix` of their own share the groups of the
    workload; a class that has one has groups that no other class uses.
    """
    group = np.full(len(class_index), -1, dtype=np.int64)
    length = np.zeros(len(class_index), dtype=np.int64)
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
            first_group += prefix.groups
    return group, length
