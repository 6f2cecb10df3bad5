"""Nothing is lost: accountants (tests/audit.py) check every event of a run, and would see it if something were.

They subclass the scheduler, which only its plain source allows (tests/conftest.py).
"""

from typing import Any

import numpy as np
import pytest
from audit import Audit, Audited, audited
from hypothesis import given, settings
from random_scenarios import scenarios
from scenario_text import scenario
from single_steps import ticks

from simserve.engine.block_pool import BlockPool
from simserve.engine.request import Request
from simserve.spec.result import COMPLETED, REJECTED, UNFINISHED
from simserve.spec.scenario import Scenario


@given(scenarios())
@settings(max_examples=100)
def test_requests_tokens_and_blocks_are_conserved_after_every_event(question: Scenario) -> None:
    """The accountants' checks (tests/audit.py) stand in every event; what is left then are the totals."""
    assert_conserved(audited(question))


@given(scenarios())
@settings(max_examples=50)
def test_replicas_that_step_together_conserve_them_too(question: Scenario) -> None:
    shared = ["model=qwen3-30b-a3b", "cluster.replicas=4", "cluster.expert_parallel={data_parallel: 2}"]
    assert_conserved(audited(question.with_overrides(shared)))


def assert_conserved(audit: Audit) -> None:
    assert all(scheduler.num_checks for scheduler in audit.schedulers if scheduler.accounts)
    assert_everyone_is_somewhere(audit)
    assert_tokens_add_up(audit)
    for scheduler in audit.schedulers:
        if not scheduler.has_requests:
            assert scheduler.ledger.pool.num_free == scheduler.ledger.pool.num_blocks


def assert_everyone_is_somewhere(audit: Audit) -> None:
    """At every instant: whoever has reached the fleet is with a replica or rejected; at the end: one status each."""
    requests = audit.result.requests
    arrived = np.sort(ticks(requests["engine_arrival"][~np.isnan(requests["engine_arrival"])]))
    for moment in audit.moments:
        assert np.searchsorted(arrived, moment.now, side="right") == moment.received + moment.rejected
    counts = np.bincount(requests["status"], minlength=5)
    assert counts[COMPLETED] == sum(scheduler.num_finished for scheduler in audit.schedulers)
    assert counts[REJECTED] == (audit.moments[-1].rejected if audit.moments else 0)
    assert counts[COMPLETED] + counts[REJECTED] + counts[UNFINISHED] == len(requests["status"])


def assert_tokens_add_up(audit: Audit) -> None:
    """Every token that was ever computed is one of a prompt or answer, was lost to a preemption, or ran past an EOS."""
    result = audit.result
    accounts = audit.accounts()
    requests, steps = result.requests, result.steps
    in_log = int(steps["prefill_tokens"].sum() + (steps["decodes"] * steps["steps"]).sum())
    assert in_log == sum(account.paid for _, account in accounts.values())
    assert result.meta["prefix_cache_hits"] == requests["cached_len"].sum()
    assert result.meta["num_preemptions"] == requests["num_preemptions"].sum() == steps["preemptions"].sum()
    for row, (request, account) in accounts.items():
        assert account.paid == account.computed + account.lost - requests["cached_len"][row]
        beyond_eos = account.sampled - requests["output_len"][row]
        assert beyond_eos in ((0, 1) if request.output_len < request.max_tokens else (0,))


def test_an_accountant_finds_a_lost_block(monkeypatch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release

    def leak(self: BlockPool, request: Request, may_return: bool) -> None:
        release(self, request, may_return)
        self.num_free -= 1
        self.num_unhashed -= 1

    monkeypatch.setattr(BlockPool, "release", leak)
    with pytest.raises(AssertionError, match="a block is lost"):
        audited(scenario())


def test_an_accountant_finds_a_lost_request(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Audited.schedule

    def drop(self: Audited) -> Any:
        if len(self.ledger.waiting) > 1:
            self.ledger.waiting.popleft()
        return schedule(self)

    monkeypatch.setattr(Audited, "schedule", drop)
    with pytest.raises(AssertionError, match="a request is lost"):
        audited(scenario("engine.max_num_seqs=2", "workload.arrivals.rate=100"))
