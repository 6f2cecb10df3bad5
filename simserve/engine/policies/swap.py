"""Preemption by swapping: the victim's KV is copied to CPU memory and back, and nothing is computed again.

vLLM did so before its V1 engine (0.8, core/scheduler.py, `_swap_out`, `_schedule_swapped`, and `--swap-space`). There
a step waited for its copies; here they pass beside the steps, on a link that works for both directions at once. So the
victim's blocks are free when its copy has ended, not before, and whoever needs them is passed over until then. A
request that comes back takes its blocks first, is copied, and goes on where it was. Those swapped out come before new
requests; a victim for which CPU memory is short is computed again.

Who is preempted, who is served and who is admitted are vLLM's rules. A step sees the copies that ended before it was
decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.block_pool import MISS
from simserve.engine.queues import QUEUES
from simserve.engine.request import FINISHED, SWAPPED
from simserve.engine.request_wise import RequestWise

if TYPE_CHECKING:
    from collections.abc import Callable

    from simserve.engine.block_pool import Hit
    from simserve.engine.config import SchedulerConfig
    from simserve.engine.counters import Counters
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request

    OnCopy = Callable[[Request, int, bool], None]
    """Begins a copy of so many blocks of a request, outward or back, when the step that is being decided begins; calls
    `Swap.copied` when it has ended.
    """


class Swap(RequestWise):
    """vLLM's policy with swapping into CPU memory of `num_cpu_blocks` blocks."""

    def __init__(self, config: SchedulerConfig, num_cpu_blocks: int, on_copy: OnCopy) -> None:
        super().__init__(config)
        self.num_free_cpu_blocks = num_cpu_blocks
        self.swapped = QUEUES[config.scheduling_policy]()
        """In CPU memory, in the order in which they come back."""
        self.leaving: dict[Request, None] = {}
        """On the way out: they hold blocks here and there."""
        self.returning: dict[Request, None] = {}
        """On the way back: they hold blocks here and there, and a seat."""
        self._on_copy = on_copy
        self._num_swaps = 0
        self._num_copied_blocks = 0
        self._all_seats = self._num_seats
        self._cpu_blocks: dict[Request, int] = {}
        self._copied: list[Request] = []
        """Whose copy has ended since the last step was decided, in that order."""
        self._lacking: dict[Request, int] = {}
        """Blocks that running requests wait for in this step."""

    @property
    def has_requests(self) -> bool:
        """Whether any request waits, runs, or is swapped."""
        return bool(self._cpu_blocks) or self.ledger.has_requests

    def unfinished(self) -> list[Request]:
        """Every request that is here."""
        away = [request for request in self._cpu_blocks if request.state is SWAPPED]
        return [*super().unfinished(), *away]

    def counters(self) -> Counters:
        """Those of any scheduler, how often requests were swapped out, and the blocks copied both ways."""
        return super().counters() | {"num_swaps": self._num_swaps, "swapped_blocks": self._num_copied_blocks}

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

    def evict(self, plan: StepPlan, victim: Request) -> int:
        """Swap a victim out, or let it be computed again where CPU memory is short."""
        self._lacking.pop(victim, None)
        history = next((chunk.history for chunk in plan.chunks if chunk.request is victim), None)
        computed = victim.num_computed_tokens if history is None else history
        num_blocks = self.ledger.num_blocks_for(computed)
        if not 0 < num_blocks <= self.num_free_cpu_blocks:
            return super().evict(plan, victim)
        given = self.ledger.drop(plan, victim)
        del self.ledger.running[victim]
        victim.num_computed_tokens = computed
        victim.state = SWAPPED
        self.ledger.note_preemption(plan, victim)
        self._num_swaps += 1
        self.num_free_cpu_blocks -= num_blocks
        self._cpu_blocks[victim] = num_blocks
        self.leaving[victim] = None
        self._copy(victim, num_blocks, outward=True)
        return given

    def _is_out(self, request: Request) -> None:
        """A request is in CPU memory: its blocks are free, though what the prefix cache holds of them may be hit."""
        del self.leaving[request]
        self.ledger.pool.release(request, may_return=request.state is not FINISHED)
        if request.state is FINISHED:
            self._free_cpu_blocks(request)
        else:
            self.swapped.appendleft(request)

    def _bring_back(self) -> None:
        """Those in CPU memory come back as long as there are seats and blocks, for their next token, too."""
        ledger = self.ledger
        while self.swapped and len(ledger.running) + len(self.returning) < self._all_seats:
            request = self.swapped[0]
            hit, num_blocks = self._hit(request), ledger.num_blocks_for(request.num_computed_tokens)
            if not ledger.has_room(request, hit, request.num_computed_tokens + 1 - hit.num_blocks * ledger.block_size):
                return
            self.swapped.popleft()
            if hit.pieces:
                ledger.pool.touch(request, hit)
            ledger.pool.take(num_blocks - hit.num_blocks)
            request.num_blocks = num_blocks
            self.returning[request] = None
            self._copy(request, num_blocks - hit.num_blocks, outward=False)

    def _hit(self, request: Request) -> Hit:
        """What the prefix cache still holds of a request's own blocks need not be copied back."""
        hit = self.ledger.pool.lookup(request)
        return hit if hit.num_blocks * self.ledger.block_size <= request.num_computed_tokens else MISS

    def _is_back(self, request: Request) -> None:
        """A request runs again, as the last admitted."""
        del self.returning[request]
        self._free_cpu_blocks(request)
        if request.state is FINISHED:
            self.ledger.pool.release(request, may_return=False)
            return
        self.ledger.hash(request, request.num_computed_tokens // self.ledger.block_size)
        self.ledger.go_on(request)

    def copied(self, request: Request) -> None:
        """A copy has ended: the next step knows."""
        self._copied.append(request)

    def _copy(self, request: Request, num_blocks: int, outward: bool) -> None:
        self._num_copied_blocks += num_blocks
        self._on_copy(request, num_blocks, outward)

    def _free_cpu_blocks(self, request: Request) -> None:
        self.num_free_cpu_blocks += self._cpu_blocks.pop(request)

    # -- one step ------------------------------------------------------------------------------------------------------

    def serve_running(self, plan: StepPlan, threshold: int) -> int:
        """Serve the running requests in order. Who lacks blocks is passed over until victims have left, and so is who
        would take blocks before it.
        """
        budget, running = self._max_tokens, self.ledger.running
        for request in list(running):
            if budget <= 0:
                break
            if request not in running:
                continue
            num_tokens = self.wanted(request, min(threshold, budget))
            needed = self.ledger.blocks_needed(request, num_tokens)
            if needed > 0 and (self._lacking or needed > self.ledger.pool.num_free):
                self._lacking[request] = needed
                budget += self.make_room(plan, request, self._lacks_blocks)
                if request not in running or len(self._lacking) > 1 or needed > self.ledger.pool.num_free:
                    continue
                del self._lacking[request]
            budget -= self.ledger.compute(plan, request, num_tokens)
        return budget

    def _lacks_blocks(self) -> bool:
        """Whether blocks are short for all who lack some, even when the copies under way have ended."""
        leaving = sum(request.num_blocks for request in self.leaving)
        return sum(self._lacking.values()) > self.ledger.pool.num_free + leaving

    def admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        """Admit nobody while someone is swapped out or lacks blocks."""
        if not (self._lacking or self.leaving or self.swapped):
            self._num_seats = self._all_seats - len(self.returning)
            super().admit(plan, budget, threshold)

    def abort(self, request: Request) -> None:
        """The client has left. Of a swapped request the blocks are free now, or when the copy under way has ended."""
        if request.state is not SWAPPED:
            super().abort(request)
            return
        self.ledger.end(request)
        if request not in self.leaving and request not in self.returning:
            self.swapped.remove(request)
            self._free_cpu_blocks(request)
