"""The walk over running requests, for the steps in which their order matters: who gets blocks and budget, and who pays.

Source of the rules: vLLM 0.32, Scheduler.schedule, the loop over running requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.preemption import make_room
from simserve.engine.request import DECODING, DRAINING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request
    from simserve.engine.summed_ledger import SummedLedger


class Walk:
    """One walk: who has been served so far, with how many tokens, and the budget that is left."""

    __slots__ = ("budget", "ledger", "plan", "served")

    def __init__(self, ledger: SummedLedger, plan: StepPlan, budget: int) -> None:
        self.ledger = ledger
        self.plan = plan
        self.budget = budget
        self.served: dict[Request, int] = {}

    def serve_all(self, requests: Iterable[Request], threshold: int, *, until_one_fails: bool) -> None:
        """Serve running requests one by one, at most `threshold` tokens each, preempting for blocks. With
        `until_one_fails` the walk ends with the request that is its own victim.
        """
        ledger = self.ledger
        running = ledger.running
        for request in requests:
            if self.budget <= 0:
                break
            if request.state is DRAINING or request not in running:
                continue
            num_tokens, needed = self._wants(request, min(threshold, self.budget))
            self._make_room(request, needed)
            if request in running:
                self._serve(request, num_tokens, needed)
            elif until_one_fails:
                break

    def serve_decodes_short_of_blocks(self) -> None:
        """The same where all decode, first come first served, and only blocks are short: none but those at the end of
        a block need looking at. A victim is the last of `running`, which has not been served yet.
        """
        ledger = self.ledger
        size = ledger.block_size
        phase = ledger.decoding.clock % size
        for request in [one for one in ledger.running if one.state is DECODING and one.base % size == phase]:
            self._make_room(request, 1)
            if request.state is not DECODING:
                break
            ledger.pool.take(1)
        self.budget -= ledger.decoding.count

    def starve_the_rest(self) -> None:
        """Decodes that got nothing have a chunk of one token to compute afterwards."""
        for request in [one for one in self.ledger.running if one.state is DECODING and one not in self.served]:
            self.ledger.starve(self.plan, request)

    def _wants(self, request: Request, limit: int) -> tuple[int, int]:
        """Tokens that a running request takes in this step, and the new blocks they need."""
        ledger = self.ledger
        size = ledger.block_size
        if request.state is DECODING:
            return 1, int((ledger.decoding.clock - request.base) % size == 0)
        num_tokens = min(request.num_tokens - request.num_computed_tokens, limit)
        return num_tokens, -(-(request.num_computed_tokens + num_tokens) // size) - request.num_blocks

    def _make_room(self, request: Request, needed: int) -> None:
        pool = self.ledger.pool
        if needed > pool.num_free:
            self.budget += make_room(self.ledger, request, lambda: needed > pool.num_free, self._evict)

    def _evict(self, victim: Request) -> int:
        given = self.served.pop(victim, 0)
        self.ledger.preempt(self.plan, victim, was_served=given > 0)
        return given

    def _serve(self, request: Request, num_tokens: int, needed: int) -> None:
        """Give a running request these tokens and their new blocks."""
        ledger = self.ledger
        self.served[request] = num_tokens
        self.budget -= num_tokens
        if request.state is not DECODING:
            ledger.compute(self.plan, request, num_tokens)
            return
        ledger.pool.take(needed)
        if request in ledger.shared_decodes:
            ledger.pool.enter(request, ledger.num_hashed_blocks(request, ahead=1))


def walk(ledger: SummedLedger, plan: StepPlan, budget: int, threshold: int) -> int:
    """Serve the running requests in the order of their admission; returns the budget that is left."""
    steps = Walk(ledger, plan, budget)
    irregular = ledger.prefilling or ledger.by_priority or ledger.shared_decodes
    if not irregular and ledger.decoding.count <= budget:
        steps.serve_decodes_short_of_blocks()
    else:
        steps.serve_all(list(ledger.running), threshold, until_one_fails=True)
        steps.starve_the_rest()
    return steps.budget
