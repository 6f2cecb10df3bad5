"""Identity of recorded prompts: how each begins, as ids of stretches of text, and what of it is shared.

An id means what it says only behind the ids before it, so that prompts are paths through a trie. Stretches that one
request alone walks are its own text, and those that the same requests walk are one: what is left are the streams of
text that the prefix cache has to know of. Blocks of any size follow exactly: a block is that of its last token, and
what is not known to be shared is not shared.
"""

from collections.abc import Hashable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.workload.formats.table import Heads

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class PrefixIds(NamedTuple):
    """Stretches of the prompts, row after row: those of row r are `[start[r], start[r + 1])`.

    `ids` are numbers of names, `ends` tokens from the start of the prompt. `known` is false in rows of which nothing is
    said, in which a session decides.
    """

    start: IntArray
    ids: IntArray
    ends: IntArray
    known: BoolArray

    def __len__(self) -> int:
        return len(self.known)

    def take(self, rows: IntArray) -> "PrefixIds":
        """These rows, in this order."""
        counts = np.diff(self.start)[rows]
        start = np.concatenate(([0], np.cumsum(counts)))
        places = np.repeat(self.start[:-1][rows] - start[:-1], counts) + np.arange(start[-1])
        return PrefixIds(start, self.ids[places], self.ends[places], self.known[rows])

    def pairs(self, row: int) -> list[tuple[int, int]]:
        """Ids and ends of one row."""
        own = slice(int(self.start[row]), int(self.start[row + 1]))
        return list(zip(self.ids[own].tolist(), self.ends[own].tolist(), strict=True))


class SharedText(NamedTuple):
    """The shared part of each prompt as streams of text: those of row r are `[start[r], start[r + 1])`.

    `streams` are numbers, `ends` tokens up to which the prompt is in the stream or in those before it.
    """

    start: IntArray
    streams: IntArray
    ends: IntArray
    known: BoolArray

    def take(self, rows: IntArray) -> "SharedText":
        """These rows, in this order."""
        return SharedText(*PrefixIds(*self).take(rows))


def prefix_ids(heads: Heads) -> PrefixIds:
    """The beginnings that a reader found, as numbers."""
    numbers: dict[Hashable, int] = {}
    found = [[] if ids is None else [numbers.setdefault(each, len(numbers)) for each in ids] for ids in heads.ids]
    ends = [[] if stops is None else stops for stops in heads.ends]
    return PrefixIds(
        np.concatenate(([0], np.cumsum([len(ids) for ids in found]))).astype(np.int64),
        np.array([each for ids in found for each in ids], dtype=np.int64),
        np.array([stop for stops in ends for stop in stops], dtype=np.int64),
        np.array([ids is not None for ids in heads.ids], dtype=np.bool_),
    )


def shared_text(prefix: PrefixIds) -> SharedText:
    """What of the prompts is shared."""
    nodes = _nodes(prefix)
    users = np.bincount(nodes, minlength=1)[nodes] if len(nodes) else nodes
    last = np.zeros(len(nodes), dtype=np.bool_)
    last[prefix.start[1:][np.diff(prefix.start) > 0] - 1] = True
    following = np.append(users[1:], 0)
    # A stretch is kept where it is shared and fewer requests walk on than came to its end.
    kept = (users > 1) & (last | (following != users))
    counts = np.add.reduceat(np.append(kept, False), prefix.start[:-1]) if len(prefix) else np.zeros(0)
    counts = np.where(np.diff(prefix.start) > 0, counts, 0)
    start = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return SharedText(start, nodes[kept], prefix.ends[kept], prefix.known)


def ideal_hits(prefix: PrefixIds) -> IntArray:
    """Tokens at the beginning of each prompt that earlier prompts began with, too: the hits of a cache without end."""
    nodes = _nodes(prefix).tolist()
    starts, ends = prefix.start.tolist(), prefix.ends.tolist()
    filled: dict[int, int] = {}
    hits = np.zeros(len(prefix), dtype=np.int64)
    for row, (begin, end) in enumerate(pairwise(starts)):
        hit = 0
        for place in range(begin, end):
            seen = min(filled.get(nodes[place], 0), ends[place])
            if not seen:
                break
            hit = max(hit, seen)
        for place in range(begin, end):
            filled[nodes[place]] = max(filled.get(nodes[place], 0), ends[place])
        hits[row] = hit
    return hits


def _nodes(prefix: PrefixIds) -> IntArray:
    """Node of the trie of each stretch: the same number where all ids up to it are the same, and where it begins."""
    known: dict[tuple[int, int, int], int] = {}
    ids, ends, starts = prefix.ids.tolist(), prefix.ends.tolist(), prefix.start.tolist()
    nodes = []
    for begin, end in pairwise(starts):
        node, place = -1, 0
        for name, stop in zip(ids[begin:end], ends[begin:end], strict=True):
            node = known.setdefault((node, name, place), len(known))
            nodes.append(node)
            place = stop
    return np.array(nodes, dtype=np.int64)
