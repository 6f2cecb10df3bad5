"""Preemption by swapping: the victim's KV is copied to CPU memory and back, and nothing is computed again.

vLLM did so before its V1 engine (0.8, core/scheduler.py, `_swap_out`, `_schedule_swapped`, and `--swap-space`). There
a step waited for its copies; here they pass beside the steps, on a link that works for both directions at once. So the
victim's blocks are free when its copy has ended, not before, and whoever needs them is passed over until then. A
request that comes back takes its blocks first, is copied, and goes on where it was. Those swapped out come before new
requests; a victim for which CPU memory is short is computed again, as ever.

Who is preempted, who is served and who is admitted are vLLM's rules. A step sees the copies that ended before it was
decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.block_pool import MISS
from simserve.engine.explicit import ExplicitScheduler
from simserve.engine.queues import QUEUES
from simserve.engine.request import FINISHED, PREFILLING, SWAPPED
from simserve.engine.walk import choose_victim, serve, wants

if TYPE_CHECKING:
    from collections.abc import Callable

    from simserve.engine.block_pool import Hit
    from simserve.engine.config import SchedulerConfig
    from simserve.engine.counters import Counters
    from simserve.engine.observer import PoolObserver
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request


class SwapScheduler(ExplicitScheduler):
    """vLLM's policy with swapping. `on_copy(request, num_blocks, outward)` begins a copy when the step that is being
    decided begins, and calls `copied` when it has ended. Whoever can copy says how much room there is.
    """

    on_copy: Callable[[Request, int, bool], None]
    num_free_cpu_blocks: int

    def __init__(self, config: SchedulerConfig, observer: PoolObserver | None = None) -> None:
        super().__init__(config, observer)
        self.num_free_cpu_blocks = 0
        self.swapped = QUEUES[config.scheduling_policy]()
        """In CPU memory, in the order in which they come back."""
        self.leaving: dict[Request, None] = {}
        """On the way out: they hold blocks here and there."""
        self.returning: dict[Request, None] = {}
        """On the way back: they hold blocks here and there, and a seat."""
        self.num_swaps = 0
        self.num_copied_blocks = 0
        self._num_seats = self._max_running
        self._cpu_blocks: dict[Request, int] = {}
        self._copied: list[Request] = []
        """Whose copy has ended since the last step was decided, in that order."""
        self._lacking: dict[Request, int] = {}
        """Blocks that running requests wait for in this step."""

    @property
    def has_requests(self) -> bool:
        """Whether any request waits, runs, or is swapped."""
        return bool(self.running or self.waiting or self._cpu_blocks)

    def counters(self) -> Counters:
        """Those of any scheduler, how often requests were swapped out, and the blocks copied both ways."""
        return super().counters() | {"num_swaps": self.num_swaps, "swapped_blocks": self.num_copied_blocks}

    def unfinished(self) -> list[Request]:
        """Every request that is here."""
        away = [request for request in self._cpu_blocks if request.state is SWAPPED]
        return [*super().unfinished(), *away]

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        for request in self._copied:
            if request in self.leaving:
                self._is_out(request)
            else:
                self._is_back(request)
        self._copied = []
        self._lacking = {}
        plan = super().schedule()
        if not (plan.preempted or self._lacking):
            self._bring_back()
        return plan

    # -- out, and back -------------------------------------------------------------------------------------------------

    def preempt(self, plan: StepPlan, request: Request, was_served: bool) -> None:
        """Swap a running request out, or let it be computed again where CPU memory is short."""
        self._lacking.pop(request, None)
        history = next((chunk.history for chunk in plan.chunks if chunk.request is request), None)
        computed = request.num_computed_tokens if history is None else history
        num_blocks = -(-computed // self.block_size)
        if not 0 < num_blocks <= self.num_free_cpu_blocks:
            super().preempt(plan, request, was_served)
            return
        self._drop_chunk(plan, request)
        del self.running[request]
        request.num_computed_tokens = computed
        request.state = SWAPPED
        self._note_preemption(plan, request)
        self.num_swaps += 1
        self.num_free_cpu_blocks -= num_blocks
        self._cpu_blocks[request] = num_blocks
        self.leaving[request] = None
        self._copy(request, num_blocks, outward=True)

    def _is_out(self, request: Request) -> None:
        """A request is in CPU memory: its blocks are free, though what the prefix cache holds of them may be hit."""
        del self.leaving[request]
        self.pool.release(request, may_return=request.state is not FINISHED)
        if request.state is FINISHED:
            self._free_cpu_blocks(request)
        else:
            self.swapped.appendleft(request)

    def _bring_back(self) -> None:
        """Those in CPU memory come back as long as there are seats and blocks, for their next token, too."""
        while self.swapped and len(self.running) + len(self.returning) < self._num_seats:
            request = self.swapped[0]
            hit, num_blocks = self._hit(request), -(-request.num_computed_tokens // self.block_size)
            whole = request.num_tokens if self.config.scheduler_reserve_full_isl else request.num_computed_tokens + 1
            extra = hit.num_free - hit.num_blocks + (self._watermark_blocks if self.running else 0)
            if -(-whole // self.block_size) + extra > self.pool.num_free:
                return
            self.swapped.popleft()
            if hit.pieces:
                self.pool.touch(request, hit)
            self.pool.take(num_blocks - hit.num_blocks)
            request.num_blocks = num_blocks
            self.returning[request] = None
            self._copy(request, num_blocks - hit.num_blocks, outward=False)

    def _hit(self, request: Request) -> Hit:
        """What the prefix cache still holds of a request's own blocks need not be copied back."""
        hit = self.pool.lookup(request)
        return hit if hit.num_blocks * self.block_size <= request.num_computed_tokens else MISS

    def _is_back(self, request: Request) -> None:
        """A request runs again, as the last admitted."""
        del self.returning[request]
        self._free_cpu_blocks(request)
        if request.state is FINISHED:
            self.pool.release(request, may_return=False)
            return
        request.num_hashed_blocks = request.num_computed_tokens // self.block_size
        self.pool.enter_shared(request, request.num_hashed_blocks)
        request.state = PREFILLING
        request.seq = self._num_admitted
        self._num_admitted += 1
        self.running[request] = None
        self.prefilling[request] = None

    def copied(self, request: Request) -> None:
        """A copy has ended: the next step knows."""
        self._copied.append(request)

    def _copy(self, request: Request, num_blocks: int, outward: bool) -> None:
        self.num_copied_blocks += num_blocks
        self.on_copy(request, num_blocks, outward)

    def _free_cpu_blocks(self, request: Request) -> None:
        self.num_free_cpu_blocks += self._cpu_blocks.pop(request)

    # -- one step ------------------------------------------------------------------------------------------------------

    def _walk(self, plan: StepPlan, budget: int, threshold: int) -> int:
        """Serve the running requests in order. Who lacks blocks is passed over until victims have left, and so is who
        would take blocks before him.
        """
        pool = self.pool
        for request in list(self.running):
            if budget <= 0:
                break
            if request not in self.running:
                continue
            num_tokens, needed = wants(self, request, min(threshold, budget))
            if needed and (self._lacking or needed > pool.num_free):
                self._lacking[request] = needed
                budget += self._make_room(plan, request)
                if request not in self.running or len(self._lacking) > 1 or needed > pool.num_free:
                    continue
                del self._lacking[request]
            budget -= num_tokens
            serve(self, plan, request, num_tokens, needed)
        return budget

    def _make_room(self, plan: StepPlan, request: Request) -> int:
        """Preempt until all who lack blocks can have them when the copies have ended; returns tokens that victims gave
        back.
        """
        given_back = 0
        while request in self.running and sum(self._lacking.values()) > self.pool.num_free + self._num_leaving_blocks():
            victim = choose_victim(self)
            given = sum(chunk.num_tokens for chunk in plan.chunks if chunk.request is victim)
            self.preempt(plan, victim, was_served=given > 0)
            given_back += given
        return given_back

    def _num_leaving_blocks(self) -> int:
        return sum(request.num_blocks for request in self.leaving)

    def _admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        """Admit nobody while someone is swapped out or lacks blocks."""
        if self._lacking or self.leaving or self.swapped:
            return
        self._max_running = self._num_seats - len(self.returning)
        super()._admit(plan, budget, threshold)

    def abort(self, request: Request) -> None:
        """The client has left. Of a swapped request the blocks are free now, or when the copy under way has ended."""
        if request.state is not SWAPPED:
            super().abort(request)
            return
        request.state = FINISHED
        self._generating.discard(request)
        if request.branch is not None:
            request.branch.owner = None
        if request not in self.leaving and request not in self.returning:
            self.swapped.remove(request)
            self._free_cpu_blocks(request)
