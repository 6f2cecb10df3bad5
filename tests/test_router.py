"""Routers: who gets a request, by rule, and what that does to a fleet."""

from collections import Counter
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_text import scenario

from simserve.cluster.routers import ROUTERS
from simserve.cluster.routers.router import Router
from simserve.engine.census import Census
from simserve.engine.clock import FOREVER
from simserve.engine.request import Request
from simserve.simulation import simulate
from simserve.spec.names import RouterName
from simserve.workload.streams import random_stream


class Fleet:
    """What a router sees: members with so many requests, and so many cached tokens of whatever is asked for."""

    def __init__(self, *loads: int, cached: Sequence[int] = ()) -> None:
        self.members = list(range(len(loads)))
        self.loads = list(loads)
        self.cached = cached

    def outstanding(self) -> list[int]:
        return self.loads

    def kv_usage(self, id: int) -> float:
        return self.loads[id] / 1000

    def cached_tokens(self, id: int, request: Request) -> int:
        return self.cached[id] if self.cached else 0


ANY = Request("any", 0, 100, 1, 1)


def router(name: RouterName, seed: int = 0) -> Router:
    return ROUTERS[name](random_stream(seed, "router"))


def test_there_is_a_router_for_each_name_of_the_scenario() -> None:
    assert set(ROUTERS) == set(get_args(RouterName))


@pytest.mark.parametrize("name", ROUTERS)
def test_one_replica_gets_everything(name: RouterName) -> None:
    chosen = router(name)
    assert {chosen.choose(ANY, Fleet(0)) for _ in range(10)} == {0}


@pytest.mark.parametrize("name", ROUTERS)
def test_only_members_are_chosen_whoever_comes_and_goes(name: RouterName) -> None:
    """Members are known by their ids: that one has left gives nobody another name."""
    chosen, fleet = router(name), Fleet(*[0] * 5)
    for members in ([0, 1, 2, 3, 4], [1, 3, 4], [4], [4, 5], [1, 5, 7]):
        fleet.members, fleet.loads = members, [0] * len(members)
        found = Counter(chosen.choose(ANY, fleet) for _ in range(300))
        assert set(found) == set(members)
        assert min(found.values()) >= 300 // len(members) * 0.6


def test_round_robin_goes_round() -> None:
    chosen = router("round_robin")
    assert [chosen.choose(ANY, Fleet(0, 9, 0)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_random_is_uniform_and_the_seeds() -> None:
    size, draws = 5, 20_000
    fleet, chosen = Fleet(*[0] * size), router("random")
    found = [chosen.choose(ANY, fleet) for _ in range(draws)]
    expected = draws / size
    chi_square = sum((count - expected) ** 2 / expected for count in Counter(found).values())
    assert chi_square < 18.5  # 99.9 % of chi-square with 4 degrees of freedom
    again, other = router("random"), router("random", seed=1)
    assert [again.choose(ANY, fleet) for _ in range(draws)] == found
    assert [other.choose(ANY, fleet) for _ in range(draws)] != found


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=30))
def test_least_requests_takes_the_next_of_the_least_loaded(states: list[list[int]]) -> None:
    """Never one with more than another; among equals the first after the one chosen last."""
    chosen, last = router("least_requests"), 2
    for counts in states:
        index = chosen.choose(ANY, Fleet(*counts))
        assert counts[index] == min(counts)
        assert index == next(i % 3 for i in range(last + 1, last + 4) if counts[i % 3] == min(counts))
        last = index


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from([0, 16, 1000])), min_size=1, max_size=6))
def test_prefix_affinity_prefers_hits_to_load_until_the_load_is_uneven(states: list[tuple[int, int]]) -> None:
    """Restated: the most cached tokens, unless some replica has 64 more requests than another and half as many again;
    then, and among equals, the fewest requests."""
    loads, cached = [load for load, _ in states], [tokens for _, tokens in states]
    index = router("prefix_affinity").choose(ANY, Fleet(*loads, cached=cached))
    is_even = max(loads) - min(loads) <= 64 or max(loads) <= 1.5 * min(loads)
    rank = [(-tokens if is_even else 0, load) for load, tokens in states]
    assert rank[index] == min(rank)


FLEET = ("cluster.replicas=4", "workload.num_requests=400", "workload.output={distribution: uniform, min: 1, max: 300}")


def test_an_idle_fleet_is_used_evenly() -> None:
    """Ties rotate: requests that never meet are spread all the same (a fleet that only used replica 0 would tell
    nothing of the others)."""
    result = simulate(
        scenario(*FLEET, "cluster.router=least_requests", "workload.arrivals={process: constant, rate: 0.2}")
    )
    assert np.bincount(result.requests["replica"]).tolist() == [100] * 4


@pytest.mark.parametrize("name", ROUTERS)
def test_every_replica_serves_what_it_was_given(name: str) -> None:
    result = simulate(scenario(*FLEET, f"cluster.router={name}", "workload.arrivals.rate=60"))
    given = np.bincount(result.requests["replica"], minlength=4)
    assert given.min() > 60
    for index in range(4):
        rows = result.steps["replica"] == index
        prompts = result.requests["input_len"][result.requests["replica"] == index]
        assert result.steps["prefill_tokens"][rows].sum() == prompts.sum()


def test_joining_the_shortest_queue_waits_less_than_going_round_and_that_less_than_chance() -> None:
    """With answers of very different lengths (Winston 1977: the shortest queue is best for exponential service)."""
    cost = "cost={constant_step: 10 ms}"
    answers = "workload.output={distribution: empirical, values: [1, 1, 1, 1, 1, 1, 1, 200]}"
    load = (answers, "workload.arrivals.rate=12", "workload.num_requests=4000", "engine.max_num_seqs=1", cost)
    waits = []
    for name in ("least_requests", "round_robin", "random"):
        requests = simulate(scenario(*FLEET, *load, f"cluster.router={name}")).requests
        waits.append((requests["scheduled"] - requests["engine_arrival"]).mean())
    assert waits[0] < 0.7 * waits[1] < 0.7 * waits[2]


@given(st.lists(st.tuples(st.sampled_from(["come", "end"]), st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_a_census_counts_what_counting_one_by_one_counts(told: list[tuple[str, int, int]]) -> None:
    """Requests come now; each ends at a tick that is told beforehand, and counts until that tick is over."""
    census, now = Census(), 0
    assert [census.join() for _ in range(4)] == [0, 1, 2, 3]
    ends: list[list[int]] = [[] for _ in range(4)]
    for what, place, ticks in told:
        if what == "come":
            census.add(place, 1)
            ends[place].append(FOREVER)
        elif FOREVER in ends[place]:
            ends[place][ends[place].index(FOREVER)] = now + ticks
            census.finishes(place, now + ticks)
        now += ticks % 2
        assert census.counts(now) == [sum(end >= now for end in each) for each in ends]
