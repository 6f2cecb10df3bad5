"""The ledger: who waits, who runs and with what seat, and who holds which blocks.

A scheduler's policy decides over it and changes it by its verbs alone: a request is added, started, given tokens
(`compute`), preempted, and leaves; its KV may come from elsewhere (`load`, `arrive`) or be kept for elsewhere (`keep`,
`sent`). Here every number of a request is explicit; `simserve.engine.summed_ledger` keeps those of decodes as sums.

Source of the rules: vLLM 0.32, v1/core/sched/scheduler.py and v1/core/kv_cache_manager.py; of KV from elsewhere
`get_num_new_matched_tokens`, `_update_waiting_for_remote_kv` and `_update_from_kv_xfer_finished` there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simserve.engine.block_pool import BlockPool
from simserve.engine.head import Head
from simserve.engine.plan import Chunk
from simserve.engine.queues import QUEUES
from simserve.engine.request import FINISHED, PREFILLING, WAITING, Request

if TYPE_CHECKING:
    from simserve.engine.block_pool import Hit
    from simserve.engine.config import SchedulerConfig
    from simserve.engine.counters import Counters
    from simserve.engine.plan import StepPlan

Fetch = Callable[[Request, int], None]
"""Told of a request whose blocks are allocated, and of how many leading ones need not be sent; acts later."""

ELSEWHERE: Final = 1 << 40
"""Stands, on a decode replica, for the step of a first token that came from elsewhere: none of its own steps."""

STEP_ELSEWHERE: Final = -2
"""Less the number of a step of another replica: what stands for that step among one's own, before any of them."""


class Ledger:
    """The books of one scheduler over the block pool `pool`.

    Blocks are held for `lookahead` tokens beyond those computed. `fetch` brings KV from elsewhere, where that is done.
    """

    __slots__ = (
        "_fetch",
        "_lookahead",
        "_num_seats_taken",
        "_reserves_all",
        "_to_keep",
        "_watermark_blocks",
        "arrived",
        "block_size",
        "by_priority",
        "config",
        "head",
        "held",
        "last_fruitful_step",
        "loading",
        "num_cache_hits",
        "num_cache_queries",
        "num_calls",
        "num_preemptions",
        "num_steps",
        "num_thrashings",
        "pool",
        "prefilling",
        "running",
        "to_load",
        "waiting",
    )

    def __init__(
        self, config: SchedulerConfig, pool: BlockPool, *, lookahead: int = 0, fetch: Fetch | None = None
    ) -> None:
        self.config = config
        self.pool = pool
        self.block_size = config.block_size
        self.by_priority = config.scheduling_policy == "priority"
        self.waiting = QUEUES[config.scheduling_policy]()
        self.head = Head()
        self.running: dict[Request, None] = {}
        """In order of admission."""
        self.prefilling: dict[Request, None] = {}
        """Running requests with tokens to compute that are not one decode, in order of admission."""
        self.arrived: dict[Request, None] = {}
        """They wait for a seat before all others under any policy: the blocks that they hold, with KV from elsewhere,
        may be what all others wait for.
        """
        self.loading: dict[Request, None] = {}
        """They hold blocks and wait for what belongs in them (WAITING_FOR_REMOTE_KVS)."""
        self.held: dict[Request, None] = {}
        """Finished requests whose blocks are to be sent elsewhere."""
        self.num_steps = 0
        self.num_calls = 0
        """How often the policy was asked to decide."""
        self.num_preemptions = 0
        self.num_thrashings = 0
        """Preemptions of a request that was preempted before, with no token given to anyone in between."""
        self.num_cache_queries = 0
        self.num_cache_hits = 0
        self.last_fruitful_step = -1
        """The last step that gave anyone a token."""
        self._lookahead = lookahead
        self._fetch = fetch
        self._watermark_blocks = int(config.watermark * config.num_gpu_blocks)
        self._reserves_all = config.scheduler_reserve_full_isl
        self._num_seats_taken = 0
        self.to_load: set[Request] = set()
        """Waiting requests whose KV is to be fetched."""
        self._to_keep: set[Request] = set()
        """Requests whose blocks are to be held when they finish."""

    # -- who is here ---------------------------------------------------------------------------------------------------

    @property
    def has_requests(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self.running or self.waiting or self.arrived)

    @property
    def anyone_waits(self) -> bool:
        """Whether there is anyone to admit."""
        return bool(self.waiting or self.arrived)

    def first_waiting(self) -> Request:
        """The request to be admitted next; one must wait."""
        if self.arrived:
            return next(iter(self.arrived))
        request: Request = self.waiting[0]
        return request

    def unfinished(self) -> list[Request]:
        """Every request that waits or runs."""
        return [*self.running, *self.arrived, *self.waiting]

    def num_computed_tokens(self, request: Request) -> int:
        """Tokens of a request whose KV is or will be there after the steps decided so far."""
        return request.num_computed_tokens

    def num_hashed_blocks(self, request: Request) -> int:
        """Leading blocks of a running request that are hashed."""
        return request.num_hashed_blocks

    def num_blocks_held(self, request: Request) -> int:
        """Blocks that a running request holds."""
        return request.num_blocks

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that a running request with so many computed tokens holds."""
        if self._lookahead:
            num_tokens = min(num_tokens + self._lookahead, self.config.max_model_len)
        return -(-num_tokens // self.block_size)

    def blocks_needed(self, request: Request, num_tokens: int) -> int:
        """New blocks for so many tokens more of a running request; none or less: it holds enough."""
        computed = request.num_computed_tokens + num_tokens
        num_blocks = self.num_blocks_for(computed) if self._lookahead else -(-computed // self.block_size)
        return num_blocks - request.num_blocks

    def counters(self) -> Counters:
        """What it has counted, by the names of a result's `meta`; those of several engines add up."""
        return {
            "total_steps": self.num_steps,
            "scheduler_calls": self.num_calls,
            "prefix_cache_queries": self.num_cache_queries,
            "prefix_cache_hits": self.num_cache_hits,
            "num_preemptions": self.num_preemptions,
            "num_thrashings": self.num_thrashings,
        }

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """A request arrives. It never changes what the plans already made do."""
        if request.path:
            self._share(request)
        if self.by_priority or not (self.waiting or self.arrived):
            self.head.is_blocked = False
        self.waiting.append(request)

    def _share(self, request: Request) -> None:
        """A request begins with the texts of others: they can be looked for from now on."""
        for branch, _ in request.path[:-1]:
            if not branch.shared:
                branch.shared = True
                owner = branch.owner
                if owner is not None:
                    assert isinstance(owner, Request)
                    self.begin_sharing(owner)

    def begin_sharing(self, owner: Request) -> None:
        """Someone may look for this request's own text from now on: enter what is full already."""
        self.pool.enter(owner, owner.num_hashed_blocks)

    # -- admission -----------------------------------------------------------------------------------------------------

    def has_room(self, request: Request, hit: Hit, num_tokens: int) -> bool:
        """Whether the head of `waiting` may start with what it hits and so many tokens more; if not, nothing but a
        release or an arrival lets it.

        Where the engine reserves all known tokens they must fit too, which is only a test (KVCacheManager,
        allocate_slots).
        """
        num_hit, size = hit.num_blocks, self.block_size
        room = self.pool.num_free - hit.num_free + num_hit
        if self.running:
            room -= self._watermark_blocks
        if self._reserves_all and -(-request.num_tokens // size) > room:
            self.head.block_whole(request, self.pool.version)
            return False
        computed = num_hit * size + num_tokens
        if (self.num_blocks_for(computed) if self._lookahead else -(-computed // size)) > room:
            self.head.is_blocked = True
            return False
        return True

    def start(self, plan: StepPlan, request: Request, hit: Hit) -> None:
        """The head of `waiting` begins to run, with what it hit."""
        self.waiting.popleft()
        if hit.pieces:
            self.pool.touch(request, hit)
        num_hit_tokens = hit.num_blocks * self.block_size
        if request.num_preemptions:
            plan.resumed += (request,)
        else:
            plan.new.append(request)
            request.scheduled = self.num_steps
            request.num_cached_tokens = num_hit_tokens
            if request.first_step < 0:  # else its prompt was looked up where its first token comes from
                self.num_cache_queries += request.num_tokens
                self.num_cache_hits += num_hit_tokens
        request.num_computed_tokens = num_hit_tokens
        request.num_blocks = hit.num_blocks
        request.state = PREFILLING
        self.take_seat(request)
        self.prefilling[request] = None

    def go_on(self, request: Request) -> None:
        """A request takes a seat, and has tokens to compute from where it is."""
        request.state = PREFILLING
        self.take_seat(request)
        self.prefilling[request] = None

    def take_seat(self, request: Request) -> None:
        """A request begins to run, as the last one admitted."""
        request.seq = self._num_seats_taken
        self._num_seats_taken += 1
        self.running[request] = None

    # -- one step ------------------------------------------------------------------------------------------------------

    def compute(self, plan: StepPlan, request: Request, num_tokens: int, ahead: int = 0) -> int:
        """Give a running request so many tokens and their blocks; returns the number of tokens. `ahead`: tokens of it
        that are in flight, as if they were known.
        """
        history, size, known = request.num_computed_tokens, self.block_size, request.num_tokens
        computed = history + num_tokens
        num_blocks = self.num_blocks_for(computed) if self._lookahead else -(-computed // size)
        if num_blocks > request.num_blocks:
            self.pool.take(num_blocks - request.num_blocks)
            request.num_blocks = num_blocks
        request.num_computed_tokens = computed
        num_hashed = (computed if computed < known else known) // size
        if num_hashed > request.num_hashed_blocks:  # noqa: PLR1730 (max() takes three times as long)
            request.num_hashed_blocks = num_hashed
        if request.path:
            self.pool.enter_shared(request, request.num_hashed_blocks)
        plan.chunks.append(Chunk(request, num_tokens, history, computed >= known + ahead))
        plan.num_prefill_tokens += num_tokens
        return num_tokens

    def hash(self, request: Request, num_blocks: int) -> None:
        """The first blocks of a request are full for good: they can be hit, if anyone may look for them."""
        if num_blocks > request.num_hashed_blocks:  # noqa: PLR1730 (max() takes three times as long)
            request.num_hashed_blocks = num_blocks
        if request.path:
            self.pool.enter_shared(request, request.num_hashed_blocks)

    # -- requests that lose their turn ---------------------------------------------------------------------------------

    def preempt(self, plan: StepPlan, request: Request) -> int:
        """Take all blocks from a running request and let it wait, at the front; its tokens are computed again later.
        Returns how many tokens of this step are taken back.
        """
        given = self.drop(plan, request)
        self.forget_kv(request)
        del self.running[request]
        request.state = WAITING
        self.waiting.appendleft(request)
        self.note_preemption(plan, request)
        return given

    def forget_kv(self, request: Request) -> None:
        """Take all blocks from a request that lives on; what was cached stays cached."""
        self.pool.release(request, may_return=True)
        request.num_computed_tokens = 0

    def drop(self, plan: StepPlan, request: Request) -> int:
        """A request that has tokens to compute gets nothing in this step; returns how many tokens are taken back."""
        self.prefilling.pop(request, None)
        given = 0
        for place, chunk in enumerate(plan.chunks):
            if chunk.request is request:
                given = chunk.num_tokens
                plan.num_prefill_tokens -= given
                del plan.chunks[place]
                break
        return given

    def note_preemption(self, plan: StepPlan, request: Request) -> None:
        """Count it."""
        if request.num_preemptions and self.last_fruitful_step < request.preempted_at:
            self.num_thrashings += 1
        request.preempted_at = self.num_steps
        request.num_preemptions += 1
        self.num_preemptions += 1
        plan.preempted += (request,)

    # -- requests that leave -------------------------------------------------------------------------------------------

    def leave(self, request: Request) -> None:
        """A request leaves for good, from wherever it stands: seat and blocks are free."""
        if request.state is WAITING:
            self.waiting.remove(request)
            self.end(request)
        else:
            self.stand_up(request)

    def stand_up(self, request: Request) -> None:
        """A running request leaves for good; its numbers are explicit."""
        if self.prefilling:
            self.prefilling.pop(request, None)
        self.give_back(request)
        del self.running[request]
        request.state = FINISHED  # as `end`, which is one call more for each request
        if request.branch is not None:
            request.branch.owner = None

    def abort(self, request: Request) -> None:
        """The client has left: blocks and seat are free for the next step, and what was cached stays cached. Blocks
        that are being written from elsewhere stay held until they are. Nothing happens to a request that has finished.

        Source: vLLM 0.32, Scheduler.finish_requests.
        """
        if request.state is FINISHED:
            return
        self.keep_no_more(request)
        self.to_load.discard(request)
        if request in self.arrived:
            del self.arrived[request]
            self.end(request)
            self.give_back(request)
        elif request in self.loading:
            self.end(request)
        else:
            self.leave(request)

    @staticmethod
    def end(request: Request) -> None:
        """A request is over."""
        request.state = FINISHED
        if request.branch is not None:
            request.branch.owner = None

    def give_back(self, request: Request) -> None:
        """A request that is over gives its blocks back, unless they are to be sent first."""
        if request not in self._to_keep:
            self.pool.release(request, may_return=False)
            return
        self._to_keep.remove(request)
        self.held[request] = None
        if request.path:  # whoever begins with this text finds it meanwhile
            self.pool.enter(request, request.num_hashed_blocks)

    # -- KV for elsewhere, and from elsewhere --------------------------------------------------------------------------

    def keep(self, request: Request) -> None:
        """More of a request is to follow elsewhere: it keeps its blocks when it finishes."""
        self._to_keep.add(request)

    def keep_no_more(self, request: Request) -> None:
        """Nothing is to follow elsewhere after all."""
        self._to_keep.discard(request)

    def sent(self, request: Request) -> None:
        """The blocks of a finished request have been sent, or nobody wants them any more: they are free."""
        del self.held[request]
        self.give_back(request)

    def begin_elsewhere(self, request: Request, first_step: int, has_kv: bool) -> None:
        """Before it is added: a request has its first token from step `first_step` of another replica, which holds its
        KV. Where it does not (the request was evicted with its token in flight) the prompt is computed here.
        """
        request.num_tokens = request.num_prompt_tokens + 1
        request.first_step, request.token_step = ELSEWHERE, STEP_ELSEWHERE - first_step
        if has_kv:
            self.to_load.add(request)

    def load(self, request: Request) -> bool:
        """The head of `waiting` gets blocks for all known tokens, and what is not cached here is fetched: a transfer is
        whole or not begun. Whether there was room.
        """
        hit = self.pool.lookup(request)
        num_blocks = self.num_blocks_for(request.num_tokens)
        missing = num_blocks - hit.num_blocks
        if missing + hit.num_free + (self._watermark_blocks if self.running else 0) > self.pool.num_free:
            self.head.block_whole(request, self.pool.version)
            return False
        self.waiting.popleft()
        self.to_load.remove(request)
        if hit.pieces:
            self.pool.touch(request, hit)
        request.num_blocks = num_blocks
        self.pool.take(missing)
        assert self._fetch is not None
        self._fetch(request, hit.num_blocks)
        if -(-request.num_prompt_tokens // self.block_size) == hit.num_blocks:
            self.arrived[request] = None
        else:
            self.loading[request] = None
        return True

    def arrive(self, request: Request) -> None:
        """The KV of a request is there; it waits for a seat. With that it enters the prefix cache."""
        del self.loading[request]
        if request.state is FINISHED:  # its client left meanwhile
            self.give_back(request)
            return
        self.arrived[request] = None
        self.head.is_blocked = False
