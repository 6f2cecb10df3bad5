"""Classes of requests: which request belongs to which, and the lengths each class draws.

A workload without classes is one class named `default`. Every class draws from streams of its own, keyed by its name.
"""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from simserve.spec.workload import LengthSpec, WorkloadSpec
from simserve.workload.lengths import draw_lengths
from simserve.workload.streams import random_stream

IntArray = NDArray[np.int64]
LengthKey = Literal["input", "output", "max_tokens"]

DEFAULT_CLASS: Final = "default"


def class_names(workload: WorkloadSpec) -> tuple[str, ...]:
    """Names in the order of the scenario; a class index counts in it."""
    return tuple(spec.name for spec in workload.classes) or (DEFAULT_CLASS,)


def class_priorities(workload: WorkloadSpec) -> IntArray:
    """Priority of each class, greater being less important."""
    return np.array([spec.priority for spec in workload.classes] or [0], dtype=np.int64)


def draw_classes(workload: WorkloadSpec, count: int, seed: int) -> IntArray:
    """Class index of `count` requests (or sessions), each drawn by the shares."""
    if len(workload.classes) <= 1:
        return np.zeros(count, dtype=np.int64)
    bounds = np.cumsum([spec.share for spec in workload.classes])
    drawn = random_stream(seed, "classes").random(count) * bounds[-1]
    return np.array(np.searchsorted(bounds[:-1], drawn, side="right"), dtype=np.int64)


def draw_by_class(
    workload: WorkloadSpec, key: LengthKey, class_index: IntArray, seed: int, otherwise: IntArray | None = None
) -> IntArray:
    """Lengths in tokens, one per row, from the distribution of the row's class, else of the workload.

    Rows of a class with neither take `otherwise`.
    """
    lengths = np.zeros(len(class_index), dtype=np.int64) if otherwise is None else otherwise.copy()
    for index, (name, spec) in enumerate(_lengths_of_classes(workload, key)):
        if spec is not None:
            rows = class_index == index
            lengths[rows] = draw_lengths(spec, int(np.count_nonzero(rows)), random_stream(seed, f"{key}/{name}"))
    return lengths


def _lengths_of_classes(workload: WorkloadSpec, key: LengthKey) -> list[tuple[str, LengthSpec | None]]:
    common: LengthSpec | None = getattr(workload, key)
    if not workload.classes:
        return [(DEFAULT_CLASS, common)]
    return [(spec.name, getattr(spec, key) or common) for spec in workload.classes]
