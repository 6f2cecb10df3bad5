"""The decoding set: all requests that get one token a step, kept so that a step costs nothing per request.

A clock counts the scheduler's steps. A decoding request stores `base`, such that it has computed `clock - base` tokens:
as the clock ticks, all of them advance. Blocks needed, context and the next to finish follow from sums over the set.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from simserve.engine.request import DECODING

if TYPE_CHECKING:
    from simserve.engine.request import Request


class DecodingSet:
    """Requests in state DECODING.

    `phases[p]` counts those with `base % block_size == p`: exactly `phases[clock % block_size]` of them need a new
    block for the next token. `finishes` is a heap of (clock at the last token, seq, request) with entries that may be
    stale; `is_current` tells.
    """

    __slots__ = ("base_sum", "block_size", "clock", "count", "finishes", "lengths", "phases")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.clock = 0
        self.count = 0
        self.base_sum = 0
        self.phases = [0] * block_size
        self.finishes: list[tuple[int, int, Request]] = []
        self.lengths: list[tuple[int, int, Request]] | None = None
        """Heap of (base, seq, request), the longest context first and stale entries among them; None where nobody asks
        for it."""

    def keep_lengths(self) -> None:
        """From now on `longest` may be asked for; before the first request joins."""
        self.lengths = []

    def join(self, request: Request, num_computed_tokens: int, remaining: int) -> None:
        """A request has computed its prompt by the step at `clock`, and `remaining` tokens follow the one that this
        step gives it.
        """
        request.state = DECODING
        request.base = base = self.clock - num_computed_tokens
        request.last_clock = last = self.clock + remaining
        self.count += 1
        self.base_sum += base
        self.phases[base % self.block_size] += 1
        heappush(self.finishes, (last, request.seq, request))
        if self.lengths is not None:
            heappush(self.lengths, (base, request.seq, request))

    def leave(self, request: Request) -> None:
        """A request stops decoding: its tokens and blocks become explicit numbers; the caller sets its new state."""
        base = request.base
        self.count -= 1
        self.base_sum -= base
        self.phases[base % self.block_size] -= 1
        request.num_computed_tokens = computed = self.clock - base
        request.num_blocks = -(-computed // self.block_size)

    def blocks_needed(self, num_steps: int) -> int:
        """New blocks that the next `num_steps` steps take."""
        size, phases = self.block_size, self.phases
        rounds, rest = divmod(num_steps, size)
        first = self.clock % size
        last = first + rest
        some = sum(phases[first:last]) if last <= size else sum(phases[first:]) + sum(phases[: last - size])
        return rounds * self.count + some

    def blocks_of_step(self, index: int) -> int:
        """New blocks that the step takes which follows after `index` others."""
        return self.phases[(self.clock + index) % self.block_size]

    def steps_within(self, num_blocks: int, limit: int) -> int:
        """The most steps, at most `limit`, whose new blocks fit in `num_blocks`."""
        if self.count * (limit // self.block_size + 1) <= num_blocks or self.blocks_needed(limit) <= num_blocks:
            return limit
        rounds, left = divmod(num_blocks, self.count)
        steps, size = rounds * self.block_size, self.block_size
        while steps < limit:
            left -= self.phases[(self.clock + steps) % size]
            if left < 0:
                break
            steps += 1
        return min(steps, limit)

    def next_finish(self) -> int:
        """The clock at which the next request gets its last token; a decoding request must exist."""
        heap = self.finishes
        while True:
            last, seq, request = heap[0]
            if request.state is DECODING and request.last_clock == last and request.seq == seq:
                return last
            heappop(heap)

    def pop_finishing(self, clock: int) -> list[Request]:
        """Take out of the heap the requests whose last token belongs to the step at `clock`, in order of admission."""
        heap = self.finishes
        finishing = []
        while heap and heap[0][0] <= clock:
            last, seq, request = heappop(heap)
            if request.state is DECODING and request.last_clock == last and request.seq == seq:
                finishing.append(request)
        return finishing

    def longest(self) -> int:
        """Tokens with KV of the request that has the most; a decoding request must exist, and `lengths`."""
        heap = self.lengths
        assert heap is not None
        while True:
            base, seq, request = heap[0]
            if request.state is DECODING and request.base == base and request.seq == seq:
                return self.clock - base
            heappop(heap)

    @property
    def context(self) -> int:
        """Tokens with KV of all decoding requests together."""
        return self.count * self.clock - self.base_sum
