"""Where a request's prompt hangs in the prefix trie of the replica that serves it.

A stream of text (a group's system prompt, one request's own text, a whole chat) may be cached on several replicas, on
each of them in a `Branch` of its own. Nothing but the chains of requests to come keeps a stream alive.
"""

import numpy as np

from simserve.engine.prefix import ENDLESS, Branch, Path
from simserve.engine.request import Request
from simserve.workload.columns import Arrival, Workload

Stream = dict[int, Branch]
"""One text: the branch that caches it on each replica, by the replica's id."""

Chain = tuple[tuple[Stream, int], ...]
"""`((stream, end_block), ..., (own stream, ENDLESS))`, as `simserve.engine.prefix.Path`, but for all replicas."""


class Prompts:
    """Gives each request its path, on the replica that gets it. Parents must come before their children.

    A turn that waits for its parent's answer, and is the only one to follow it, goes on in the parent's stream: a chat
    is one text. With `sent_again` a request may be placed several times, until `pass_over`: its prompt is the same each
    time, and what it was answered is lost.
    """

    def __init__(self, workload: Workload, block_size: int, max_model_len: int, sent_again: bool = False) -> None:
        self._block_size = block_size
        parent = workload.text_parent
        num_children = np.bincount(parent[parent >= 0], minlength=len(parent))
        self._parent = np.ascontiguousarray(parent).data
        self._children_to_come = num_children.data
        self._goes_on = ((parent >= 0) & (workload.arrival < 0) & (num_children[parent] == 1)).data
        self._spoken = np.minimum(workload.input_len + workload.output_len, max_model_len).data
        self._chains: dict[int, Chain] = {}
        self._groups: dict[int, Stream] = {}
        self._streams: dict[int, Stream] = {}
        shared = workload.shared_text
        self._shared = (
            None if shared is None else tuple(column.data for column in (shared.start, shared.streams, shared.ends))
        )
        """Where the shared text of each row begins, its streams and their ends in tokens; None if nothing is said."""
        self._sent_again = sent_again
        self._attempts: dict[int, Chain] = {}
        """Of requests that may be sent again: the chain of the attempt before."""

    def chain(self, arrival: Arrival) -> Chain:
        """What the prompt of a request consists of, wherever it may be placed."""
        row = arrival.row
        tried = self._attempts.get(row)
        if tried is not None:
            return (*_cut(tried, arrival.input_len // self._block_size), ({}, ENDLESS))
        parent = self._parent[row]
        before = self._chains.get(parent)
        if before is not None:
            if self._goes_on[row]:
                return before
            shared = min(self._spoken[parent], arrival.input_len)
            return (*_cut(before, shared // self._block_size), ({}, ENDLESS))
        if self._shared is not None:
            return self._recorded_chain(row)
        if arrival.prefix_group >= 0:
            stream = self._groups.setdefault(arrival.prefix_group, {})
            return ((stream, arrival.prefix_len // self._block_size), ({}, ENDLESS))
        return (({}, ENDLESS),)

    def _recorded_chain(self, row: int) -> Chain:
        """The chain of a row whose beginning a trace states, or states nothing of."""
        assert self._shared is not None
        start, streams, ends = self._shared
        chain: list[tuple[Stream, int]] = []
        before = 0
        for place in range(start[row], start[row + 1]):
            end = ends[place] // self._block_size
            if end > before:
                chain.append((self._streams.setdefault(streams[place], {}), end))
                before = end
        return (*chain, ({}, ENDLESS))

    def place(self, request: Request, row: int, chain: Chain, replica: int) -> bool:
        """Set the path of a request that is about to reach `replica`, if any other request shares a part of it; whether
        one does, so that it is to be hung up in other replicas, too.
        """
        if row not in self._attempts:
            self._has_asked(self._parent[row])
        if self._sent_again:
            self._attempts[row] = chain
            request.is_awaited = True
        if self._children_to_come[row]:
            self._chains[row] = chain
            request.is_awaited = True
        elif len(chain) == 1 and not chain[0][0] and not self._sent_again:
            return False
        self.hang(request, chain, replica)
        return True

    @staticmethod
    def hang(request: Request, chain: Chain, replica: int) -> None:
        """Set the path of a request on a replica."""
        own = chain[-1][0]
        branch = own.get(replica)
        if branch is None:
            branch = own[replica] = Branch(request)
        branch.owner = request
        request.branch = branch
        head = [(_branch(stream, replica), end) for stream, end in chain[:-1]]
        request.path = (*head, (branch, ENDLESS))

    def pass_over(self, row: int) -> None:
        """A request will not be placed (any more): if it never was, its parent awaits one child fewer."""
        if self._attempts.pop(row, None) is None:
            self._has_asked(self._parent[row])

    def _has_asked(self, parent: int) -> None:
        """One of the children of a row has had its chain, or needs it no more; forgotten after the last of them."""
        if parent >= 0:
            self._children_to_come[parent] -= 1
            if not self._children_to_come[parent]:
                self._chains.pop(parent, None)


def path_on(chain: Chain, replica: int) -> Path:
    """The beginning of a chain that a replica has ever had, for a look at what it has cached of it."""
    path = []
    for stream, end in chain:
        branch = stream.get(replica)
        if branch is None:
            break
        path.append((branch, end))
    return tuple(path)


def _branch(stream: Stream, replica: int) -> Branch:
    branch = stream.get(replica)
    if branch is None:
        branch = stream[replica] = Branch()
    return branch


def _cut(chain: Chain, end: int) -> Chain:
    """The part of a chain that holds its first `end` blocks."""
    kept = []
    for stream, stop in chain:
        kept.append((stream, min(stop, end)))
        if stop >= end:
            break
    return tuple(kept)
