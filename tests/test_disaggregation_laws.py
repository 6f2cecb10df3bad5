"""Laws of every disaggregated run: nothing is lost between the pools, nothing comes before its cause, and nothing is
left to chance.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from audit import Watched
from hypothesis import given, settings
from hypothesis import strategies as st
from pooled import drafting_pooled_scenarios, impatient_pooled_scenarios, pooled, pooled_scenarios
from single_steps import ticks
from test_impatient import assert_same_attempts
from test_laws import assert_monotone, assert_same_records, of_replica
from test_skipping import assert_same, both_ways

from simserve.cluster.disaggregation import Disaggregation
from simserve.engine.census import Census
from simserve.engine.clock import FOREVER
from simserve.engine.ledger import Ledger
from simserve.engine.request import Request
from simserve.report.itl import pooled_gaps
from simserve.report.speculation import num_later_tokens
from simserve.report.summary import summarize
from simserve.simulation import Simulation, simulate
from simserve.spec.result import COMPLETED, REJECTED, UNFINISHED, Result
from simserve.spec.scenario import Scenario
from simserve.workload.workload import build_workload

TO_THE_END = {"max_time": None}


@given(pooled_scenarios(run=TO_THE_END) | drafting_pooled_scenarios(run=TO_THE_END))
@settings(max_examples=30)
def test_every_request_is_served_once_or_rejected(question: Scenario) -> None:
    """All tokens of all answers that fit, whichever way they went; and the gaps between them fill the time."""
    result = simulate(question)
    requests = result.requests
    rejected = requests["input_len"] >= question.engine.max_model_len
    np.testing.assert_array_equal(requests["status"], np.where(rejected, REJECTED, COMPLETED))
    wanted = build_workload(question).output_len
    room = question.engine.max_model_len - requests["input_len"]
    np.testing.assert_array_equal(requests["output_len"], np.where(rejected, 0, np.minimum(wanted, room)))
    assert_gaps_fill_the_time(result)
    summarize(result)


def assert_gaps_fill_the_time(result: Result) -> None:
    requests = result.requests
    done = requests["status"] == COMPLETED
    count = total = 0
    for gap, weight in pooled_gaps(result, done):
        assert (gap[weight > 0] >= 0).all()
        count += int(weight.sum())
        total += int((gap * weight).sum())
    assert count == num_later_tokens(result, done)
    assert total == (ticks(requests["finish"][done]) - ticks(requests["first_token"][done])).sum()


@given(pooled_scenarios(run=TO_THE_END))
@settings(max_examples=30)
def test_tokens_are_computed_once_but_for_what_is_preempted(question: Scenario) -> None:
    """Every prompt token is computed in one of the pools or found in its cache, every token after the first is a decode
    of the second pool. Only preemptions, and a step past an EOS, compute more.
    """
    result = simulate(question)
    requests, steps = result.requests, result.steps
    done = requests["status"] == COMPLETED
    prompts = int((requests["input_len"] - requests["cached_len"])[done].sum())
    answers = int((requests["output_len"] - 1)[done].sum())
    computed = int(steps["prefill_tokens"].sum() + (steps["decodes"] * steps["steps"]).sum())
    assert computed >= prompts + answers
    if not requests["num_preemptions"].any() and question.workload.max_tokens is None:
        assert steps["prefill_tokens"].sum() == prompts
        assert computed == prompts + answers
    in_prefill = steps["replica"] < question.cluster.num_engines - decode_replicas(question)
    assert not steps["decodes"][in_prefill].any()
    assert result.meta["num_preemptions"] == requests["num_preemptions"].sum() == steps["preemptions"].sum()
    assert result.meta["prefix_cache_hits"] == requests["cached_len"].sum()


@given(drafting_pooled_scenarios(run=TO_THE_END))
@settings(max_examples=30)
def test_tokens_of_drafts_add_up(question: Scenario) -> None:
    """Steps give all tokens that were answered, but for drafts past an end; first tokens come from the prefill pool or
    from whom it left the prompt to.
    """
    result = simulate(question)
    requests, steps, meta = result.requests, result.steps, result.meta
    assert steps["output_tokens"].sum() == requests["output_len"].sum()
    in_prefill = steps["replica"] < question.cluster.num_engines - decode_replicas(question)
    first_here = requests["prefill_replica"] < question.cluster.num_engines - decode_replicas(question)
    assert steps["output_tokens"][in_prefill].sum() == (first_here & (requests["prefill_replica"] >= 0)).sum()
    assert steps["draft_tokens"].sum() >= meta["spec_decode_draft_tokens"]
    assert meta["prefix_cache_hits"] == requests["cached_len"].sum()


def decode_replicas(question: Scenario) -> int:
    assert question.cluster.pools is not None
    return question.cluster.pools.decode.replicas


@given(pooled_scenarios() | drafting_pooled_scenarios())
@settings(max_examples=30)
def test_nothing_happens_before_its_cause(question: Scenario) -> None:
    """A transfer begins when the first token is there, and ends before the second one is decided."""
    result = simulate(question)
    requests = result.requests
    delivery = question.cost.host.delivery
    moments = [
        *(requests[name] for name in ("arrival", "engine_arrival", "scheduled")),
        *(requests["first_token"] - delivery, requests["kv_transfer_start"], requests["kv_transfer_end"]),
        requests["finish"] - delivery,
    ]
    for before, after in pairwise(moments):
        both = ~np.isnan(before) & ~np.isnan(after)
        assert (ticks(before)[both] <= ticks(after)[both]).all()
    sent = ~np.isnan(requests["kv_transfer_end"])
    assert (requests["kv_transfer_bytes"] > 0).tolist() == sent.tolist()
    assert (requests["prefill_replica"] != requests["replica"])[sent & (requests["output_len"] > 1)].all()
    assert_tokens_come_after_their_transfers(result)
    for number in range(question.cluster.num_engines):
        assert_monotone(of_replica(result, number))


def assert_tokens_come_after_their_transfers(result: Result) -> None:
    """The step that gives the second token is decided when all KV is there."""
    requests, gaps = result.requests, result.gaps
    crossing = np.flatnonzero(gaps["replica_before"] != requests["replica"][gaps["request"]])
    for index in crossing.tolist():
        row = gaps["request"][index]
        log = of_replica(result, requests["replica"][row])
        step = np.searchsorted(log["step"], gaps["step_after"][index], side="right") - 1
        if not np.isnan(requests["kv_transfer_end"][row]):
            assert log["start"][step] >= requests["kv_transfer_end"][row]


# Conservation at every instant


class Books:
    """Looks into both pools at the end of every instant."""

    def __init__(self, question: Scenario) -> None:
        self.simulation = Simulation(question)
        for replica in self.simulation.replicas:
            if replica._census is None:
                census = Census()
                replica.be_counted(census, census.join())
        self.num_checks = 0

    def check(self) -> None:
        self.num_checks += 1
        fleet = self.simulation.fleet
        assert isinstance(fleet, Disaggregation)
        on_the_way = set(fleet._handovers)
        decode = list(fleet.pools[1].replicas.values())
        seen: set[int] = set()
        for replica in self.simulation.replicas:
            ledger = replica.scheduler.ledger
            for there in (ledger.held, ledger.loading):
                assert {int(request.id) for request in there} <= on_the_way
            holders = [*ledger.running, *ledger.held, *ledger.loading, *ledger.arrived]
            here = [*holders, *ledger.waiting]
            if replica in decode:
                here = [request for request in here if int(request.id) not in on_the_way]
            rows = [int(request.id) for request in here]
            assert len(rows) == len(set(rows))
            assert not seen & set(rows), "a request is in two places"
            seen.update(rows)
            self.check_blocks(ledger, holders)

    @staticmethod
    def check_blocks(ledger: Ledger, holders: list[Request]) -> None:
        """All blocks are free, or held by someone who is known to hold them; shared ones are held by several."""
        ledger.pool.check()
        held = sum(ledger.num_blocks_held(request) for request in holders)
        assert ledger.pool.num_blocks - ledger.pool.num_free <= held, "a block is lost"
        if not ledger.config.enable_prefix_caching:
            assert ledger.pool.num_blocks - ledger.pool.num_free == held, "a block is held twice"


@pytest.mark.plain_source
@given(pooled_scenarios(run=TO_THE_END) | drafting_pooled_scenarios(run=TO_THE_END))
@settings(max_examples=30)
def test_requests_and_blocks_are_conserved_at_every_instant(question: Scenario) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simserve.simulation.simulation.Clock", Watched)
        books = Books(question)
        assert isinstance(books.simulation.clock, Watched)
        books.simulation.clock.at_end_of_instant = books.check
        books.simulation.run()
    assert books.num_checks
    fleet = books.simulation.fleet
    assert isinstance(fleet, Disaggregation)
    assert not fleet._handovers
    for replica in books.simulation.replicas:
        assert replica.scheduler.ledger.pool.num_free == replica.scheduler.ledger.pool.num_blocks
        assert replica.num_outstanding(FOREVER) == 0


def keep_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill replica forgets to free what it has sent."""
    monkeypatch.setattr(Ledger, "sent", lambda self, request: self.held.pop(request))


def free_at_the_end_of_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill replica does not wait for the transfer."""
    give_back = Ledger.give_back

    def at_once(self: Ledger, request: Request) -> None:
        give_back(self, request)
        if request in self.held:
            self.pool.release(request, may_return=False)
            request.num_blocks = 1

    monkeypatch.setattr(Ledger, "give_back", at_once)


def take_a_block_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode replica allocates a block that nobody holds."""
    load = Ledger.load

    def one_more(self: Ledger, request: Request) -> bool:
        loaded = load(self, request)
        self.pool.take(int(loaded))
        return loaded

    monkeypatch.setattr(Ledger, "load", one_more)


@pytest.mark.plain_source
@pytest.mark.parametrize("fault", [keep_what_was_sent, free_at_the_end_of_the_prompt, take_a_block_too_many])
def test_the_books_see_a_fault(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    monkeypatch.setattr("simserve.simulation.simulation.Clock", Watched)
    no_cache = "engine.enable_prefix_caching=false"
    books = Books(pooled("workload.num_requests=5", "cluster.kv_link={latency: 1 s}", no_cache))
    assert isinstance(books.simulation.clock, Watched)
    books.simulation.clock.at_end_of_instant = books.check
    with pytest.raises(AssertionError, match="a block is"):
        books.simulation.run()


@pytest.mark.plain_source
@given(impatient_pooled_scenarios(run=TO_THE_END))
@settings(max_examples=50)
def test_nothing_stays_behind_who_gives_up(question: Scenario) -> None:
    """Wherever an attempt is when its client hangs up, all blocks of both pools are free in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simserve.simulation.simulation.Clock", Watched)
        books = Books(question)
        assert isinstance(books.simulation.clock, Watched)
        books.simulation.clock.at_end_of_instant = books.check
        result = books.simulation.run()
    fleet = books.simulation.fleet
    assert isinstance(fleet, Disaggregation)
    assert not fleet._handovers
    for replica in books.simulation.replicas:
        scheduler = replica.scheduler
        assert not scheduler.has_requests
        assert scheduler.ledger.pool.num_free == scheduler.ledger.pool.num_blocks
        assert replica.num_outstanding(FOREVER) == 0
    assert (result.requests["status"] != UNFINISHED).all()
    answered = result.requests["status"] == COMPLETED
    assert (result.attempts["status"] == COMPLETED).sum() == answered.sum()
    assert_gaps_fill_the_time(result)
    summarize(result)


@given(impatient_pooled_scenarios())
@settings(max_examples=50)
def test_runs_equal_steps_whoever_gives_up(question: Scenario) -> None:
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    assert_same_attempts(runs, steps)


@given(pooled_scenarios(run={"max_time": 0.3}) | drafting_pooled_scenarios(run={"max_time": 0.3}))
@settings(max_examples=30)
def test_a_run_that_is_stopped_knows_where_everyone_is(question: Scenario) -> None:
    """Statuses add up, and whoever is between the pools has one token."""
    result = simulate(question)
    requests = result.requests
    came = ~np.isnan(requests["arrival"])
    assert np.isin(requests["status"][came], (COMPLETED, REJECTED, UNFINISHED)).all()
    spoke = requests["first_step"] >= 0
    assert (spoke == (requests["output_len"] > 0)).all()
    assert (requests["output_len"][spoke & (requests["replica"] == requests["prefill_replica"])] >= 1).all()
    tokens = sum(int(weight.sum()) for _, weight in pooled_gaps(result, spoke))
    assert tokens == num_later_tokens(result, spoke)
    summarize(result)


# The same at any resolution, in any order


@given(pooled_scenarios() | drafting_pooled_scenarios())
@settings(max_examples=50)
def test_runs_equal_steps(question: Scenario) -> None:
    assert_same(*both_ways(question))


@pytest.mark.slow
@given(pooled_scenarios() | drafting_pooled_scenarios())
@settings(max_examples=5_000, derandomize=False)
def test_runs_equal_steps_in_thousands_of_scenarios(question: Scenario) -> None:
    assert_same(*both_ways(question))


@given(pooled_scenarios() | drafting_pooled_scenarios())
@settings(max_examples=10)
def test_the_same_question_has_the_same_answer(question: Scenario) -> None:
    assert_same_records(simulate(question), simulate(question))


@given(st.integers(0, 999))
@settings(max_examples=10)
def test_a_slower_link_delays_no_first_token_of_roomy_pools(seed: int) -> None:
    """As long as prefill replicas are never short of blocks, all that a link changes comes after the first token."""
    fast, slow = (
        simulate(pooled(f"seed={seed}", f"cluster.kv_link={{bandwidth: {rate}}}", "workload.num_requests=40"))
        for rate in ("100 GB/s", "1 GB/s")
    )
    np.testing.assert_array_equal(fast.requests["first_token"], slow.requests["first_token"])
    assert (fast.requests["kv_transfer_end"] < slow.requests["kv_transfer_end"]).all()
