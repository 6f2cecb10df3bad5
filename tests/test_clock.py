"""Arrivals that are fed to the clock come as if each were an event of its own."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from simserve.engine.clock import Clock
from simserve.engine.instant import DECIDE, Due

Heard = list[tuple[int, str, int]]


def fed(arrivals: list[int], heard: Heard, wakes: list[int] | None = None) -> Clock:
    """A clock that is fed these arrivals; each leaves an event `wakes` ticks later."""
    clock = Clock()

    def deliver(number: int) -> None:
        heard.append((int(clock.now), "arrival", number))
        if wakes:
            remind(clock, int(clock.now) + wakes[number % len(wakes)], heard, number)

    clock.feed(iter(zip(arrivals, range(len(arrivals)), strict=True)), deliver)
    return clock


def remind(clock: Clock, at: int, heard: Heard, number: int) -> None:
    event: Any = Due(clock, at, DECIDE)
    event.callbacks.append(lambda _: heard.append((int(clock.now), "event", number)))


TICKS = st.lists(st.integers(0, 40), max_size=12).map(sorted)


@given(TICKS, TICKS)
def test_arrivals_and_events_come_in_order_and_arrivals_first(arrivals: list[int], events: list[int]) -> None:
    heard: Heard = []
    clock = fed(arrivals, heard)
    for number, at in enumerate(events):
        remind(clock, at, heard, number)
    seen = []
    while clock.peek() != float("inf"):
        seen.append(clock.peek())
        clock.step()
        assert clock.now == seen[-1]
    assert seen == sorted([*arrivals, *events])
    assert heard == sorted(heard)
    assert clock.num_events == len(arrivals) + len(events)


@given(TICKS, st.lists(st.integers(1, 30), min_size=1, max_size=3), st.integers(0, 60))
@example(arrivals=[1, 5], wakes=[2], until=9)
def test_whoever_passes_arrivals_passes_no_event(arrivals: list[int], wakes: list[int], until: int) -> None:
    """An arrival may cause an event that is due before the next arrival: time must not run past it."""
    heard: Heard = []
    clock = fed(arrivals, heard, wakes)
    if clock.pass_arrivals(until):
        assert clock.peek() > until
    clock.run()
    times = [at for at, _, _ in heard]
    assert times == sorted(times)
    assert len(heard) == 2 * len(arrivals)


@given(TICKS, st.integers(1, 40))
def test_an_end_of_the_run_comes_before_the_arrivals_of_its_tick(arrivals: list[int], end: int) -> None:
    heard: Heard = []
    clock = fed(arrivals, heard)
    clock.run(until=end)
    assert [at for at, _, _ in heard] == [at for at in arrivals if at < end]
