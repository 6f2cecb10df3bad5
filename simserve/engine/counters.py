"""What the parts of an engine count, each for itself, and how the counts of several engines add up."""

from collections.abc import Iterable

Counters = dict[str, "int | list[int]"]
"""Counts by the names that they have in a result's `meta`; a list counts by place."""


def total(counters: Iterable[Counters]) -> Counters:
    """The sums of all counts that any of them has, in the order in which they are met."""
    sums: Counters = {}
    for each in counters:
        for name, count in each.items():
            sums[name] = _added(sums[name], count) if name in sums else count
    return sums


def _added(one: int | list[int], other: int | list[int]) -> int | list[int]:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    assert isinstance(one, list)
    assert isinstance(other, list)
    return [left + right for left, right in zip(one, other, strict=True)]
