"""What a scheduler holds in a disaggregated fleet, where one replica computes a prompt and another decodes: the KV that
is to be sent, or that is to come.

On the prefill side answers have one token; blocks stay held after the answer until they have been sent. On the decode
side a request gets blocks before its KV is sent (WAITING_FOR_REMOTE_KVS), and goes on from its second token when the KV
is there; what is evicted is computed again on that side. How a request goes on is the scheduler's own (`go_on`): under
speculation both sides have the drafter, whose KV belongs to the blocks.

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simserve.engine.block_pool import Hit
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request
    from simserve.engine.scheduler import Scheduler

    Fetch = Callable[[Request, int], None]
    """Told of a request whose blocks are allocated, and of how many leading ones need not be sent; acts later."""


ELSEWHERE: Final = 1 << 40
"""Stands, on a decode replica, for the step of a first token that came from elsewhere: none of its own steps."""

STEP_ELSEWHERE: Final = -2
"""Less the number of a step of another replica: what stands for that step among one's own, before any of them."""


class KvProducer:
    """Keeps the blocks of prompts that `scheduler` has computed until they have been sent."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._kept: set[Request] = set()
        self.held: dict[Request, None] = {}
        """Finished requests whose blocks have not been sent yet."""
        scheduler.producer = self

    def keep(self, request: Request) -> None:
        """More than its first token is to follow elsewhere: the request keeps its blocks when it finishes."""
        self._kept.add(request)

    def take_over(self, request: Request) -> bool:
        """A request has finished; whether its blocks are to be sent, and so stay held."""
        if request not in self._kept:
            return False
        self._kept.remove(request)
        self.held[request] = None
        if request.path:  # whoever begins with this text finds it meanwhile
            self.scheduler.pool.enter(request, request.num_hashed_blocks)
        return True

    def sent(self, request: Request) -> None:
        """The blocks of a finished request have been sent, or nobody wants them any more: they are free."""
        del self.held[request]
        self.scheduler.let_go(request)

    def forget(self, request: Request) -> None:
        """The client has left before the first token: nothing is to be sent."""
        self._kept.discard(request)


class KvConsumer:
    """Has `scheduler` go on with requests that have their first token from elsewhere, when `fetch` has brought their
    KV; others are served from the beginning.
    """

    def __init__(self, scheduler: Scheduler, fetch: Fetch) -> None:
        self.scheduler = scheduler
        self.queue = ArrivalsFirst(scheduler.config.scheduling_policy)
        self.receiving: dict[Request, None] = {}
        """Requests that hold blocks and wait for what belongs in them."""
        self._fetch = fetch
        self._elsewhere: set[Request] = set()
        """Waiting requests whose KV is to be fetched."""
        scheduler.consumer, scheduler.waiting = self, self.queue

    def begin_elsewhere(self, request: Request, first_step: int, has_kv: bool) -> None:
        """Before it is added: a request has its first token from step `first_step` of another replica, which holds its
        KV. Where it does not (the request was evicted with its token in flight) the prompt is computed here.
        """
        request.num_tokens = request.num_prompt_tokens + 1
        request.first_step, request.token_step = ELSEWHERE, STEP_ELSEWHERE - first_step
        if has_kv:
            self._elsewhere.add(request)

    def awaits(self, request: Request) -> bool:
        """Whether the KV of a waiting request comes, or has come, from elsewhere."""
        return request in self._elsewhere or request in self.queue.arrived

    def admit(self, plan: StepPlan, request: Request, budget: int) -> int | None:
        """The head of `waiting` gets blocks, or goes on if its KV has come; returns what it takes of the budget, None
        if it must go on waiting.
        """
        if request in self._elsewhere:
            hit = self.scheduler.pool.lookup(request)
            if not self._has_room(request, hit):
                return None
            self.queue.popleft()
            self._allocate(request, hit)
            return 0
        taken = self.scheduler.go_on(plan, request, budget)
        if not taken:
            return None
        del self.queue.arrived[request]
        return taken

    def _has_room(self, request: Request, hit: Hit) -> bool:
        """Whether blocks for all known tokens are free: a transfer is whole or not begun."""
        scheduler = self.scheduler
        missing = scheduler.num_blocks_for(request.num_tokens) - hit.num_blocks
        return scheduler.has_free_blocks(request, missing + hit.num_free)

    def _allocate(self, request: Request, hit: Hit) -> None:
        """Blocks for all known tokens; what was not found here is fetched."""
        scheduler = self.scheduler
        self._elsewhere.remove(request)
        if hit.pieces:
            scheduler.pool.touch(request, hit)
        request.num_blocks = scheduler.num_blocks_for(request.num_tokens)
        scheduler.pool.take(request.num_blocks - hit.num_blocks)
        self._fetch(request, hit.num_blocks)
        if -(-request.num_prompt_tokens // scheduler.block_size) == hit.num_blocks:
            self.queue.arrived[request] = None
        else:
            self.receiving[request] = None

    def arrive(self, request: Request) -> None:
        """The KV of a request is there; the request waits for a seat. With that it enters the prefix cache."""
        del self.receiving[request]
        if request.state is FINISHED:  # its client left meanwhile
            self.scheduler.let_go(request)
            return
        self.queue.arrived[request] = None
        self.scheduler.test_head_again()

    def abort(self, request: Request) -> bool:
        """The client has left; whether that is all. Blocks that are being written stay held until the transfer has
        ended.
        """
        self._elsewhere.discard(request)
        has_arrived = request in self.queue.arrived
        if not has_arrived and request not in self.receiving:
            return False
        request.state = FINISHED
        if request.branch is not None:
            request.branch.owner = None
        if has_arrived:
            del self.queue.arrived[request]
            self.scheduler.let_go(request)
        return True


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
