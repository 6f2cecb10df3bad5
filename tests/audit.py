"""An accountant beside each scheduler of a run: it keeps books of its own, from the plans alone, and compares.

`audited(question)` simulates with it. Every `add`, `schedule`, `repeat` and `complete` is followed by a check of the
laws: no request is lost or in two places, no token is left out or computed twice, no block is lost or held for nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from simserve.engine.clock import Clock
from simserve.engine.config import SchedulerConfig
from simserve.engine.plan import StepPlan
from simserve.engine.policies import SCHEDULERS
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.request import FINISHED, Request
from simserve.simulation import Simulation
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario


@dataclass
class Account:
    """What the plans said of one request."""

    computed: int = 0
    """Tokens with KV now."""
    hit: int = 0
    """How many of these it found in the cache."""
    sampled: int = 0
    """Tokens that the model has produced for it."""
    paid: int = 0
    """Tokens ever computed for it."""
    lost: int = 0
    """Computed tokens that preemptions took away, less those found again."""
    preempted_at: int = -1
    """Tokens that the replica had produced when the request was preempted last."""


class Audited(VllmV1):
    """A scheduler that is checked after everything it does."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self.accounts: dict[Request, Account] = {}
        self.decoders: set[Request] = set()
        self.num_sampled = 0
        self.num_futile = 0
        """Preemptions of a request between which and the one before nobody gained a token."""
        self.num_finished = 0
        self.num_aborted = 0
        self.num_checks = 0

    def add(self, request: Request) -> None:
        super().add(request)
        self.accounts[request] = Account()
        self.check()

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        for request in (*plan.preempted, *plan.starved):
            self.decoders.discard(request)
        for request in plan.preempted:
            account = self.accounts[request]
            self.num_futile += account.preempted_at == self.num_sampled
            account.preempted_at = self.num_sampled
            account.lost += account.computed
            account.computed = account.hit = 0
        self.enter_decodes(plan, 1)
        self.enter_chunks(plan)
        self.enter_last_tokens(plan)
        self.check_work(plan)
        self.check()
        return plan

    def repeat(self, num_steps: int) -> StepPlan:
        plan = super().repeat(num_steps)
        self.enter_decodes(plan, num_steps)
        self.enter_last_tokens(plan)
        self.check()
        return plan

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        for request in plan.finishing:
            self.check_finished(request, self.accounts[request])
        finished = super().complete(plan)
        assert list(finished) == list(plan.finishing)
        self.decoders.difference_update(finished)
        self.num_finished += len(finished)
        self.check()
        return finished

    def abort(self, request: Request) -> None:
        self.num_aborted += request.state is not FINISHED
        super().abort(request)
        assert request not in self.ledger.running
        assert request not in list(self.ledger.waiting)
        self.decoders.discard(request)
        self.check()

    # -- the books -----------------------------------------------------------------------------------------------------

    def enter_decodes(self, plan: StepPlan, num_steps: int) -> None:
        for request in self.decoders:
            account = self.accounts[request]
            account.computed += num_steps
            account.paid += num_steps
            account.sampled += num_steps
        self.num_sampled += num_steps * len(self.decoders)
        assert plan.num_decodes == len(self.decoders)
        assert plan.context == sum(self.accounts[request].computed for request in self.decoders)

    def enter_chunks(self, plan: StepPlan) -> None:
        admitted = {*plan.new, *plan.resumed}
        assert plan.num_prefill_tokens == sum(chunk.num_tokens for chunk in plan.chunks)
        assert plan.num_prefill_tokens + plan.num_decodes <= self.config.max_num_batched_tokens
        for chunk in plan.chunks:
            account = self.accounts[chunk.request]
            if chunk.request in admitted:
                account.computed = account.hit = chunk.history
                account.lost -= chunk.history if chunk.request in plan.resumed else 0
            assert chunk.num_tokens > 0
            assert chunk.history == account.computed, "a token is left out, or computed twice"
            account.computed += chunk.num_tokens
            account.paid += chunk.num_tokens
            if chunk.completes:
                account.sampled += 1
                self.num_sampled += 1
                self.decoders.add(chunk.request)

    def enter_last_tokens(self, plan: StepPlan) -> None:
        for request in plan.finishing:
            assert self.accounts[request].sampled == request.output_len
            if self.config.async_scheduling and request.output_len == request.max_tokens:
                self.decoders.remove(request)

    # -- the laws ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What holds at any time."""
        self.num_checks += 1
        waiting = list(self.ledger.waiting)
        here = {*waiting, *self.ledger.running}
        assert len(here) == len(waiting) + len(self.ledger.running), "a request is in two places"
        assert len(self.accounts) == len(here) + self.num_finished + self.num_aborted, "a request is lost"
        assert len(self.ledger.running) <= (self.config.max_num_active_seqs or self.config.max_num_seqs)
        self.ledger.pool.check()
        assert self.ledger.num_thrashings == self.num_futile
        assert not (self.num_futile and self.config.scheduler_reserve_full_isl), "preempted again before anyone gained"
        size = self.config.block_size
        accounts = [self.accounts[request] for request in self.ledger.running]
        blocks = sum(-(-account.computed // size) for account in accounts)
        shared = sum(account.hit // size for account in accounts)
        held = self.ledger.pool.num_blocks - self.ledger.pool.num_free
        assert blocks - shared <= held <= blocks, "a block is lost, or held for nothing"

    def check_work(self, plan: StepPlan) -> None:
        """Idle only if nobody is there: the pools of these tests hold the longest request."""
        assert self.ledger.running or not self.ledger.waiting, "idle while somebody waits"
        if plan.is_empty and not plan.preempted:
            served = [
                request for request in self.ledger.running if self.accounts[request].sampled == request.max_tokens
            ]
            assert served == list(self.ledger.running), "idle while somebody runs"

    def check_finished(self, request: Request, account: Account) -> None:
        """All but the last token has KV, unless the request was preempted with the last one in flight; scheduled ahead
        of an EOS that nobody knew of, it computed one token too many."""
        if request not in self.ledger.running:
            assert account.computed == 0
            return
        too_many = account.computed - (request.num_prompt_tokens + request.output_len - 1)
        assert too_many in (
            (0, 1) if self.config.async_scheduling and request.output_len < request.max_tokens else (0,)
        )


class Moment(NamedTuple):
    """An instant, after all its events: requests that have reached the fleet by then."""

    now: int
    received: int
    rejected: int


class Watched(Clock):
    """A clock that never runs backwards and tells of each instant when it is over."""

    at_end_of_instant: Callable[[], None]

    def step(self) -> None:
        before = self.now
        super().step()
        assert self.now >= before, "the clock ran backwards"
        if self.peek() > self.now:
            self.at_end_of_instant()


class Audit(NamedTuple):
    """What an audited run leaves."""

    result: Result
    schedulers: list[Audited]
    moments: list[Moment]

    def accounts(self) -> dict[int, tuple[Request, Account]]:
        """Row of the workload -> its request and account."""
        return {
            int(request.id): (request, account)
            for scheduler in self.schedulers
            for request, account in scheduler.accounts.items()
        }


def audited(question: Scenario) -> Audit:
    """Simulate with accountants and a watched clock."""
    schedulers: list[Audited] = []
    moments: list[Moment] = []

    def build(config: SchedulerConfig) -> Audited:
        schedulers.append(Audited(config))
        return schedulers[-1]

    def note() -> None:
        received = sum(len(scheduler.accounts) for scheduler in schedulers)
        moments.append(Moment(int(simulation.clock.now), received, len(simulation.fleet.rejected)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCHEDULERS, "vllm_v1", build)
        patch.setattr("simserve.simulation.simulation.Clock", Watched)
        simulation = Simulation(question)
        assert isinstance(simulation.clock, Watched)
        simulation.clock.at_end_of_instant = note
        return Audit(simulation.run(), schedulers, moments)
