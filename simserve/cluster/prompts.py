"""Where a request's prompt hangs in the prefix trie of the replica that serves it.

A stream of text (a group's system prompt, one request's own text) may be cached on several replicas; each copy is a
`Branch` of its own. Streams are forgotten when no request to come can begin with them.
"""

import numpy as np

from simserve.engine.prefix import ENDLESS, Branch
from simserve.engine.request import Request
from simserve.workload.columns import IntArray, Workload

Chain = tuple[tuple[int, int], ...]
"""`((stream, end_block), ..., (own stream, ENDLESS))`; a request's stream is its row, a group's is `-1 - group`."""


class Prompts:
    """Gives each request its path, on the replica that gets it. Rows must come after their parents."""

    def __init__(self, workload: Workload, block_size: int, max_model_len: int) -> None:
        self._block_size = block_size
        self._parent = workload.parent
        self._spoken = np.minimum(workload.input_len + workload.output_len, max_model_len)
        self._awaited = _num_descendants(workload.parent)
        self._chains: dict[int, Chain] = {}
        self._branches: dict[int, dict[int, Branch]] = {}

    def place(self, request: Request, row: int, replica: int, group: int, prefix_len: int) -> None:
        """Set the path of a request that is about to reach `replica`."""
        parent = int(self._parent[row])
        if parent in self._chains:
            shared = min(int(self._spoken[parent]), request.num_prompt_tokens) // self._block_size
            chain = (*_cut(self._chains[parent], shared), (row, ENDLESS))
        elif group >= 0:
            chain = ((-1 - group, prefix_len // self._block_size), (row, ENDLESS))
        else:
            chain = ((row, ENDLESS),)
        if self._awaited[row]:
            self._chains[row] = chain
            self._branches[row] = {replica: request.own_branch()}
        if len(chain) > 1:
            head = tuple((self._branch(stream, replica), end) for stream, end in chain[:-1])
            request.path = (*head, (request.own_branch(), ENDLESS))
        self.pass_over(row)

    def pass_over(self, row: int) -> None:
        """A row has come, whether it was placed or rejected: its ancestors await one descendant fewer."""
        parent = int(self._parent[row])
        while parent >= 0:
            self._awaited[parent] -= 1
            if not self._awaited[parent]:
                self._chains.pop(parent, None)
                self._branches.pop(parent, None)
            parent = int(self._parent[parent])

    def _branch(self, stream: int, replica: int) -> Branch:
        copies = self._branches.setdefault(stream, {})
        if replica not in copies:
            copies[replica] = Branch()
        return copies[replica]


def _cut(chain: Chain, end: int) -> Chain:
    """The part of a chain that holds its first `end` blocks."""
    kept = []
    for stream, stop in chain:
        kept.append((stream, min(stop, end)))
        if stop >= end:
            break
    return tuple(kept)


def _num_descendants(parent: IntArray) -> IntArray:
    """How many rows descend from each row; a parent's row is smaller than its child's."""
    descendants = np.zeros(len(parent), dtype=np.int64)
    for row in np.flatnonzero(parent >= 0)[::-1].tolist():
        descendants[parent[row]] += 1 + descendants[row]
    return descendants
