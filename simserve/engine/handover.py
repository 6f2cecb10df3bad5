"""The two schedulers of a disaggregated fleet: one computes prompts for others, the other decodes what was computed
elsewhere.

A prefill scheduler is vLLM's with answers of one token; blocks stay held after the answer until they have been sent. A
decode scheduler allocates the blocks of a request before its KV is sent (WAITING_FOR_REMOTE_KVS), and lets it decode
from its second token on when the KV is there; what it evicts it computes again by itself.

Source: vLLM 0.32, v1/core/sched/scheduler.py (`get_num_new_matched_tokens`, `_update_waiting_for_remote_kv`,
`_update_from_kv_xfer_finished`) and the NIXL connector. One thing differs: vLLM's proxy throws the token of the prefill
replica away and has its decode replica compute the last token of the prompt again; here, as in DistServe, Dynamo and
SGLang, the token counts. A decode replica therefore allocates room for it, too, and nobody who has his KV can be short
of a block for his first step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simserve.engine.queues import QUEUES
from simserve.engine.request import FINISHED
from simserve.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simserve.engine.block_pool import Hit
    from simserve.engine.config import SchedulerConfig
    from simserve.engine.observer import PoolObserver
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request

    Fetch = Callable[[Request, int], None]
    """Told of a request whose blocks are allocated, and of how many leading ones need not be sent; acts later."""


ELSEWHERE: Final = 1 << 40
"""Stands, on a decode replica, for the step of a first token that came from elsewhere: none of its own steps."""


class PrefillScheduler(Scheduler):
    """Computes prompts whose blocks are sent elsewhere."""

    def __init__(self, config: SchedulerConfig, observer: PoolObserver | None = None) -> None:
        super().__init__(config, observer)
        self._kept: set[Request] = set()
        self.held: dict[Request, None] = {}
        """Finished requests whose blocks have not been sent yet."""

    def keep(self, request: Request) -> None:
        """More than its first token is to follow elsewhere: the request keeps its blocks when it finishes."""
        self._kept.add(request)

    def let_go(self, request: Request) -> None:
        """A finished request gives its blocks back, unless they are to be sent first."""
        if request not in self._kept:
            super().let_go(request)
            return
        self._kept.remove(request)
        self.held[request] = None
        if request.path:  # whoever begins with this text finds it meanwhile
            self.pool.enter(request, request.num_hashed_blocks)

    def sent(self, request: Request) -> None:
        """The blocks of a finished request have been sent, or nobody wants them any more: they are free."""
        del self.held[request]
        super().let_go(request)

    def abort(self, request: Request) -> None:
        """The client has left before the first token: nothing is to be sent."""
        self._kept.discard(request)
        super().abort(request)


class DecodeScheduler(Scheduler):
    """Goes on with requests that have their first token from elsewhere; others are served from the beginning."""

    def __init__(self, config: SchedulerConfig, observer: PoolObserver | None = None) -> None:
        super().__init__(config, observer)
        self.waiting = self._queue = ArrivalsFirst(config.scheduling_policy)
        self._elsewhere: set[Request] = set()
        """Waiting requests whose KV is to be fetched."""
        self.receiving: dict[Request, None] = {}
        """Requests that hold blocks and wait for what belongs in them."""
        self.fetch: Fetch = _fetch_nothing

    def begin_elsewhere(self, request: Request, first_step: int, has_kv: bool) -> None:
        """Before it is added: a request has its first token from step `first_step` of another replica, which holds its
        KV. Where it does not (the request was evicted with its token in flight) the prompt is computed here.
        """
        request.num_tokens = request.num_prompt_tokens + 1
        request.first_step, request.token_step = ELSEWHERE, first_step
        if has_kv:
            self._elsewhere.add(request)

    # -- admission -----------------------------------------------------------------------------------------------------

    def _admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        """As ever, but who waits for KV gets blocks and no tokens, and whose KV has come decodes at once."""
        waiting, pool = self._queue, self.pool
        self._head_stays_blocked = False
        if plan.preempted:
            return
        while waiting and budget > 0:
            if len(self.running) >= self._max_running:
                self._head_stays_blocked = True
                return
            request = waiting[0]
            if request in waiting.arrived:
                waiting.popleft()
                budget -= self._decode(plan, request)
                continue
            if request is self._blocked_head and pool.version == self._blocked_version:
                self._head_stays_blocked = True
                return
            hit = pool.lookup(request)
            if request not in self._elsewhere:
                num_tokens = self._admissible_tokens(request, hit, budget, threshold)
                if not num_tokens:
                    return
                waiting.popleft()
                self._start(plan, request, hit)
                budget -= self.schedule_chunk(plan, request, num_tokens)
            elif self._has_room(request, hit):
                waiting.popleft()
                budget -= self._allocate(plan, request, hit)
            else:
                return

    def _has_room(self, request: Request, hit: Hit) -> bool:
        """Whether blocks for all known tokens are free: a transfer is whole or not begun."""
        extra = hit.num_free - hit.num_blocks + (self._watermark_blocks if self.running else 0)
        if -(-request.num_tokens // self.block_size) + extra <= self.pool.num_free:
            return True
        self._blocked_head, self._blocked_version = request, self.pool.version
        self._head_stays_blocked = True
        return False

    def _allocate(self, plan: StepPlan, request: Request, hit: Hit) -> int:
        """Blocks for all known tokens; what was not found here is fetched. Returns tokens given: one where nothing is
        missing.
        """
        size = self.block_size
        self._elsewhere.remove(request)
        if hit.pieces:
            self.pool.touch(request, hit)
        request.num_blocks = -(-request.num_tokens // size)
        self.pool.take(request.num_blocks - hit.num_blocks)
        self.fetch(request, hit.num_blocks)
        if -(-request.num_prompt_tokens // size) == hit.num_blocks:
            return self._decode(plan, request)
        self.receiving[request] = None
        return 0

    def arrive(self, request: Request) -> None:
        """The KV of a request is there; the request waits for a seat. With that it enters the prefix cache."""
        del self.receiving[request]
        if request.state is FINISHED:  # its client left meanwhile
            self.let_go(request)
            return
        self._queue.arrived[request] = None
        self._head_stays_blocked = False

    def _decode(self, plan: StepPlan, request: Request) -> int:
        """A request whose KV is there gets a token in this step, like all who decode; returns the number of tokens."""
        computed = request.num_tokens
        request.scheduled = self.num_steps
        request.seq = self._num_admitted
        self._num_admitted += 1
        self.running[request] = None
        request.num_hashed_blocks = computed // self.block_size
        if request.path:
            self.pool.enter_shared(request, request.num_hashed_blocks)
        self.decoding.join(request, computed, request.num_prompt_tokens + request.output_len - computed - 1)
        if request.branch is not None and request.branch.shared:
            self.shared_decodes[request] = None
        plan.num_decodes += 1
        plan.num_sampled += 1
        plan.context += computed
        plan.longest = 0 if self.decoding.lengths is None else self.decoding.longest()
        plan.gaps += ((request, request.token_step),)
        return 1

    def _note_tokens(self, plan: StepPlan) -> None:
        if plan.num_decodes and self.num_steps == plan.index:  # only such as have just come decode
            self.num_steps += 1
        super()._note_tokens(plan)

    def _start(self, plan: StepPlan, request: Request, hit: Hit) -> None:
        """A prompt that was computed elsewhere and lost has been looked up there: each request counts once."""
        counts = self.num_cache_queries, self.num_cache_hits
        began_elsewhere = request.first_step >= 0
        super()._start(plan, request, hit)
        if began_elsewhere:
            self.num_cache_queries, self.num_cache_hits = counts

    def abort(self, request: Request) -> None:
        """The client has left. Blocks that are being written stay held until the transfer has ended."""
        if request in self.receiving:
            request.state = FINISHED
            if request.branch is not None:
                request.branch.owner = None
            return
        holds_blocks = request in self._queue.arrived
        self._elsewhere.discard(request)
        super().abort(request)
        if holds_blocks:
            self.let_go(request)


class ArrivalsFirst:
    """Waiting requests: those whose KV has come before all others, first come first served; the methods of a deque that
    a scheduler uses.

    They are first under any policy: the blocks that they hold may be what all others wait for. Only the others, who
    wait for blocks, are counted.
    """

    def __init__(self, policy: str) -> None:
        self._others = QUEUES[policy]()
        self.arrived: dict[Request, None] = {}

    def append(self, request: Request) -> None:
        """Let a request wait."""
        self._others.append(request)

    def appendleft(self, request: Request) -> None:
        """Let a preempted request wait."""
        self._others.appendleft(request)

    def __getitem__(self, index: int) -> Request:
        """The request to be admitted next; only index 0 exists."""
        if self.arrived and index == 0:
            return next(iter(self.arrived))
        request: Request = self._others[index]
        return request

    def popleft(self) -> Request:
        """Take out the request to be admitted next."""
        request = self[0]
        if self.arrived:
            del self.arrived[request]
        else:
            self._others.popleft()
        return request

    def remove(self, request: Request) -> None:
        """Take out a request from anywhere."""
        if request in self.arrived:
            del self.arrived[request]
        else:
            self._others.remove(request)

    def __len__(self) -> int:
        return len(self._others)

    def __bool__(self) -> bool:
        return bool(self.arrived) or len(self._others) > 0

    def __iter__(self) -> Iterator[Request]:
        yield from self.arrived
        yield from self._others


def _fetch_nothing(request: Request, num_cached_blocks: int) -> None:
    raise AssertionError(f"{request}, with {num_cached_blocks} blocks, begins nowhere else")
