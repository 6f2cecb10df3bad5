"""The network between replicas: max-min fair at every instant, exact in whole ticks, and nothing is lost."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.cluster.link import PARTS, Network, max_min_rates
from simserve.engine.clock import Clock
from simserve.engine.instant import ARRIVAL, Due
from simserve.spec.ticks import TICKS_PER_SECOND

Flows = list[list[int]]
Sending = tuple[int, int, list[int]]
"""Tick at which it begins, bytes, and the links that it crosses."""

LINKS = 5
flows = st.lists(st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=3, unique=True), min_size=1, max_size=8)
capacities = st.lists(st.integers(1, 50), min_size=LINKS, max_size=LINKS)


def water_level(flows: Sequence[Sequence[int]], capacities: Sequence[Fraction]) -> list[Fraction]:
    """The definition, in exact fractions: all rates rise together; where a link is full, those who cross it stop."""
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        steps = []
        for link, capacity in enumerate(capacities):
            crossing = [flow for flow, links in enumerate(flows) if link in links]
            more = [flow for flow in crossing if flow in rising]
            if more:
                steps.append((capacity - sum(rates[flow] for flow in crossing)) / len(more))
        rise = min(steps)
        for flow in rising:
            rates[flow] += rise
        full = {
            link
            for link, capacity in enumerate(capacities)
            if sum(rates[flow] for flow, links in enumerate(flows) if link in links) == capacity
        }
        rising = {flow for flow in rising if not full & set(flows[flow])}
    return rates


@given(flows, capacities)
def test_rates_are_those_of_the_definition(flows: Flows, capacities: list[int]) -> None:
    rates = max_min_rates(flows, [capacity * PARTS for capacity in capacities])
    exact = water_level(flows, [Fraction(capacity * PARTS) for capacity in capacities])
    for rate, one in zip(rates, exact, strict=True):
        assert rate <= one + len(flows)
        assert rate == pytest.approx(one, abs=len(flows)), "off by more than a part a flow"


@given(flows, capacities)
def test_no_link_is_overfull_and_everyone_has_a_full_link_where_nobody_gets_more(
    flows: Flows, capacities: list[int]
) -> None:
    """The two together are max-min fairness (Bertsekas and Gallager, section 6.5.2), and work conservation."""
    rates = max_min_rates(flows, [capacity * PARTS for capacity in capacities])
    used = [sum(rate for rate, links in zip(rates, flows, strict=True) if link in links) for link in range(LINKS)]
    for link, capacity in enumerate(capacities):
        assert used[link] <= capacity * PARTS
    for rate, links in zip(rates, flows, strict=True):
        bottlenecks = [
            link
            for link in links
            if used[link] > capacities[link] * PARTS - len(flows)
            and rate >= max(r for r, other in zip(rates, flows, strict=True) if link in other) - 1
        ]
        assert bottlenecks


@given(st.integers(1, 16), st.integers(1, 10**12))
def test_equal_shares_are_exactly_equal(count: int, capacity: int) -> None:
    rates = max_min_rates([[0]] * count, [capacity * PARTS])
    assert sum(rates) == capacity * PARTS
    assert len(set(rates)) == 1


def arrivals(sent: Sequence[Sending], bandwidths: Sequence[float | None]) -> list[int]:
    """When each transfer arrives."""
    env, ends = Clock(), [-1] * len(sent)
    network = Network(env, bandwidths)

    def send(number: int) -> None:
        _, num_bytes, links = sent[number]
        network.start(num_bytes, links, lambda: ends.__setitem__(number, int(env.now)))

    for number, (at, _, _) in enumerate(sent):
        event = Due(env, at, ARRIVAL + number)
        assert event.callbacks is not None
        event.callbacks.append(lambda _, number=number: send(number))  # type: ignore[misc]
    env.run()
    return ends


def exact_arrivals(sent: Sequence[Sending], bandwidths: Sequence[int]) -> list[Fraction]:
    """The same fluid in exact fractions of a tick, from event to event."""
    capacities = [Fraction(rate, TICKS_PER_SECOND) for rate in bandwidths]
    left = {number: Fraction(num_bytes) for number, (_, num_bytes, _) in enumerate(sent)}
    ends = [Fraction(-1)] * len(sent)
    now, to_come, active = Fraction(0), sorted(range(len(sent)), key=lambda n: sent[n][0]), []
    while to_come or active:
        rates = water_level([sent[number][2] for number in active], capacities) if active else []
        horizon = [left[number] / rate for number, rate in zip(active, rates, strict=True)]
        if to_come:
            horizon.append(sent[to_come[0]][0] - now)
        passed = min(horizon)
        now += passed
        for number, rate in zip(active, rates, strict=True):
            left[number] -= rate * passed
            if left[number] == 0:
                ends[number] = now
        active = [number for number in active if left[number] > 0]
        while to_come and sent[to_come[0]][0] <= now:
            active.append(to_come.pop(0))
    return ends


sendings = st.lists(
    st.tuples(
        st.integers(0, 10**10),
        st.integers(1, 10**7),
        st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=3, unique=True),
    ),
    min_size=1,
    max_size=7,
)


@given(sendings, st.lists(st.integers(10**8, 10**11), min_size=LINKS, max_size=LINKS))
def test_transfers_end_when_the_exact_fluid_says(sent: list[Sending], bandwidths: list[int]) -> None:
    """To the tick but for the rounding up of each end, which those behind it may feel."""
    ends, exact = arrivals(sent, bandwidths), exact_arrivals(sent, bandwidths)
    for end, one in zip(ends, exact, strict=True):
        assert -1 <= end - one <= len(sent) + 1


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_a_transfer_alone_takes_its_bytes_over_the_bandwidth(num_bytes: int, bandwidth: int) -> None:
    assert arrivals([(7, num_bytes, [0])], [bandwidth]) == [7 - (-num_bytes * TICKS_PER_SECOND // bandwidth)]


@given(sendings)
def test_a_link_is_never_idle_while_somebody_waits_for_it(sent: list[Sending]) -> None:
    """Over one link the last one arrives when a queue served one by one would be done, whoever shared with whom."""
    one_link = [(at, num_bytes, [0]) for at, num_bytes, _ in sent]
    busy = Fraction(0)
    for at, num_bytes, _ in sorted(one_link):
        busy = max(busy, Fraction(at)) + Fraction(num_bytes * TICKS_PER_SECOND, 10**9)
    assert 0 <= max(arrivals(one_link, [10**9])) - busy <= len(sent)


def test_who_leaves_gives_his_share_to_the_others() -> None:
    """Two of 1 MB and one of 3 MB over 1 GB/s: 3 ms at a third each, then the third one alone for the rest."""
    ends = arrivals([(0, 10**6, [0]), (0, 10**6, [0]), (0, 3 * 10**6, [0])], [1e9])
    assert ends == [30 * 10**9, 30 * 10**9, 50 * 10**9]


def test_what_one_link_does_not_let_through_the_others_use() -> None:
    """A and B share a link of 10 GB/s, but B's other link lets 1 GB/s through: A has 9."""
    ends = arrivals([(0, 9 * 10**9, [0]), (0, 10**9, [0, 1])], [1e10, 1e9])
    assert ends == [TICKS_PER_SECOND, TICKS_PER_SECOND]


def test_a_link_without_a_bandwidth_holds_nobody_up() -> None:
    assert arrivals([(3, 10**12, [0, 1]), (5, 1000, [1, 2])], [None, None, 1e3]) == [3, 5 + TICKS_PER_SECOND]
