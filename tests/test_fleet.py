"""Fleets whose replicas come and go: ids stay, no request is lost, and only who takes requests gets any."""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from impatient_scenarios import impatient_scenarios
from pooled import pooled, pooled_scenarios
from random_scenarios import scenarios
from scenario_text import scenario
from simpy import Event
from single_steps import ticks
from test_skipping import assert_same

from simserve.cluster.fleet import Fleet
from simserve.simulation import Simulation
from simserve.spec.result import COMPLETED, REJECTED, TIMED_OUT, UNFINISHED, Result
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_ticks

TO_THE_END = {"max_time": None}


class Change(NamedTuple):
    """What happens to a fleet, so many seconds into the run: `add`, `drain` or `kill`, and which of the pools or of the
    members, counted round.
    """

    at: float
    what: str
    which: int


class Lived(NamedTuple):
    """A run during which a fleet changed: when each replica came, and when it ceased to take requests or to live."""

    simulation: Simulation
    result: Result
    came: dict[int, int]
    left: dict[int, int]
    died: dict[int, int]


def lived(question: Scenario, changes: Sequence[Change]) -> Lived:
    """Run a scenario while its fleet changes; the last member of a pool stays."""
    simulation = Simulation(question)
    run = Lived(simulation, None, dict.fromkeys(range(len(simulation.replicas)), 0), {}, {})  # type: ignore[arg-type]
    simulation.clock.process(change(simulation, sorted(changes), run))
    return run._replace(result=simulation.run())


def change(simulation: Simulation, changes: Sequence[Change], run: Lived) -> Generator[Event, None, None]:
    fleet, clock = simulation.fleet, simulation.clock
    for at, what, which in changes:
        yield clock.timeout(max(0, to_ticks(at) - int(clock.now)))
        now, pool = int(clock.now), fleet.pools[which % len(fleet.pools)]
        if what == "add":
            run.came.update(dict.fromkeys(fleet.add(pool), now))
        elif len(pool.members) > 1:
            id = pool.members[which % len(pool.members)]
            (fleet.drain if what == "drain" else fleet.kill)(id)
            run.left[id] = now
            if what == "kill":
                run.died[id] = now


def plans(*whats: str) -> st.SearchStrategy[list[Change]]:
    """Up to five changes, some of them at the same tick."""
    times = st.sampled_from([0, 0.01, 0.05, 0.2, 1])
    return st.lists(st.builds(Change, times, st.sampled_from(whats), st.integers(0, 3)), max_size=5)


def assert_only_members_served(run: Lived) -> None:
    requests = run.result.requests
    reached = ticks(requests["engine_arrival"])
    for name in ("replica", "prefill_replica"):
        chosen = requests.get(name, np.full(len(reached), -1))
        assert chosen.max(initial=-1) < len(run.simulation.replicas)
        for id, at in run.left.items():
            assert (reached[chosen == id] <= at).all(), "a replica got a request after it had left"
        for id, at in run.came.items():
            assert (reached[chosen == id] >= at).all(), "a replica got a request before it came"
    for id, at in run.died.items():
        begun = ticks(run.result.steps["start"][run.result.steps["replica"] == id])
        assert (begun <= at).all(), "a replica took a step when it was dead"


def assert_nothing_is_left(run: Lived) -> None:
    for replica in run.simulation.replicas:
        assert not replica.scheduler.has_requests
        assert replica.scheduler.ledger.pool.num_free == replica.scheduler.ledger.pool.num_blocks


@given(scenarios(run=TO_THE_END) | pooled_scenarios(run=TO_THE_END), plans("add", "drain"))
@settings(max_examples=30)
def test_who_comes_gets_requests_and_who_leaves_serves_what_it_has(question: Scenario, changes: list[Change]) -> None:
    run = lived(question, changes)
    requests = run.result.requests
    rejected = requests["input_len"] >= question.engine.max_model_len
    np.testing.assert_array_equal(requests["status"], np.where(rejected, REJECTED, COMPLETED))
    assert_only_members_served(run)
    assert_nothing_is_left(run)


@given(scenarios(run=TO_THE_END), plans("add", "drain", "kill"))
@settings(max_examples=30)
def test_a_request_is_lost_only_with_its_replica(question: Scenario, changes: list[Change]) -> None:
    """Every request has one status; whoever is unfinished was on a replica that died, or waits for the answer to one
    that was."""
    run = lived(question, changes)
    requests = run.result.requests
    assert np.isin(requests["status"], (COMPLETED, REJECTED, UNFINISHED)).all()
    was_sent = ~np.isnan(requests["engine_arrival"])
    lost = was_sent & (requests["status"] == UNFINISHED)
    assert set(requests["replica"][lost].tolist()) <= {*run.died}
    assert_only_members_served(run)
    assert_nothing_is_left(run)
    if not run.died:
        assert not (requests["status"] == UNFINISHED).any()


@given(impatient_scenarios(run=TO_THE_END), plans("add", "drain", "kill"))
@settings(max_examples=25)
def test_attempts_add_up_whoever_dies(question: Scenario, changes: list[Change]) -> None:
    """What a user has is one of his attempts'; none is answered twice, none by who was dead when it came."""
    run = lived(question, changes)
    requests, attempts = run.result.requests, run.result.attempts
    answered = attempts["request"][attempts["status"] == COMPLETED]
    assert np.unique(answered).tolist() == np.flatnonzero(requests["status"] == COMPLETED).tolist()
    assert len(answered) == len(np.unique(answered))
    assert_only_members_served(run)
    assert_nothing_is_left(run)


@given(scenarios(run=TO_THE_END) | impatient_scenarios(run=TO_THE_END), plans("add", "drain", "kill"))
@settings(max_examples=30)
def test_runs_equal_steps_whoever_comes_and_goes(question: Scenario, changes: list[Change]) -> None:
    step_by_step = question.with_overrides(["run.resolution=steps"])
    assert_same(lived(question, changes).result, lived(step_by_step, changes).result)


BUSY = ("workload.arrivals.rate=60", "workload.num_requests=600", "cluster.router=least_requests")


def test_a_second_replica_halves_the_load_of_the_first() -> None:
    """600 requests in about 10 s; from 5 s on there are two."""
    run = lived(scenario(*BUSY), [Change(5, "add", 0)])
    requests = run.result.requests
    later = requests["engine_arrival"] > 5
    assert np.bincount(requests["replica"][later]).tolist() == pytest.approx([later.sum() / 2] * 2, rel=0.25)
    assert (requests["replica"][~later] == 0).all()
    assert run.result.steps["replica"].max() == 1


def test_clients_with_patience_send_again_what_a_dead_replica_had() -> None:
    """All of its requests are answered by the other one, and by nobody where none may be sent again."""
    fleet = ("cluster.replicas=2", "workload.num_requests=200", "workload.client={timeout: 5 s, retries: 3}")
    again = lived(scenario(*fleet), [Change(10, "kill", 0)])
    once = lived(scenario(*fleet, "workload.client.retries=0"), [Change(10, "kill", 0)])
    assert (again.result.requests["status"] == COMPLETED).all()
    moved = again.result.attempts["attempt"] == 1
    assert 1 <= moved.sum() == (once.result.requests["status"] == TIMED_OUT).sum()
    assert (again.result.attempts["replica"][moved] == 1).all()
    waited = again.result.attempts["arrival"][moved]
    assert (waited > 10).all()


def test_of_a_pool_with_one_member_nobody_can_leave() -> None:
    fleet = Simulation(scenario("cluster.replicas=2")).fleet
    fleet.drain(0)
    with pytest.raises(ValueError, match="replica 0 takes no requests of pool whole"):
        fleet.drain(0)
    for leave in (fleet.drain, fleet.kill):
        with pytest.raises(ValueError, match="replica 1 is the last one of pool whole: add another one first"):
            leave(1)
    assert fleet.add(fleet.pools[0]) == [2]
    fleet.kill(1)
    assert fleet.pools[0].members == [2]


def test_a_replica_of_a_disaggregated_fleet_cannot_be_killed() -> None:
    fleet = Simulation(pooled("cluster.pools={prefill: {replicas: 2}, decode: {replicas: 2}}")).fleet
    with pytest.raises(ValueError, match="replica 0: in a disaggregated fleet replicas can be drained, to kill"):
        fleet.kill(0)
    assert [pool.members for pool in fleet.pools] == [[0, 1], [2, 3]]
    assert [fleet.add(pool) for pool in fleet.pools] == [[4], [5]]
    assert [pool.members for pool in fleet.pools] == [[0, 1, 4], [2, 3, 5]]


def test_ranks_that_share_experts_join_together() -> None:
    question = scenario(
        "model=mixtral-8x7b", "cluster={gpu: h200-sxm-141gb, replicas: 2, expert_parallel: {data_parallel: 2}}"
    )
    fleet = Simulation(question).fleet
    assert fleet.add(fleet.pools[0]) == [2, 3]


# The laws can fail


def takes_what_leaves(fleet: Fleet, id: int) -> None:
    """Drained, and still chosen."""


def goes_on(fleet: Fleet, id: int) -> None:
    """Killed, and its requests go on."""
    fleet.pools[0].leave(id)


@pytest.mark.plain_source
@pytest.mark.parametrize(
    ("name", "fault", "said"),
    [("drain", takes_what_leaves, "after it had left"), ("kill", goes_on, "a step when it was dead")],
)
def test_the_laws_see_a_fault(
    name: str, fault: Callable[[Fleet, int], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fleet, name, fault)
    run = lived(scenario(*BUSY, "cluster.replicas=2"), [Change(1, name, 0)])
    with pytest.raises(AssertionError, match=said):
        assert_only_members_served(run)
