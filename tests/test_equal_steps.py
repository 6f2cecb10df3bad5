"""Runs of equal steps in closed form against the recurrences, taken one by one."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from simserve.cost.step import UNBOUNDED, DecodeCost, Piece
from simserve.engine.equal_steps import Batch, EqualSteps, Progression, equal_steps

small = st.integers(0, 30)
progressions = st.builds(Progression, st.integers(0, 1000), st.integers(1, 50), st.integers(0, 5))


@given(progressions)
def test_a_progression_grows_by_growing_gaps(progression: Progression) -> None:
    value, gap = progression.first, progression.gap
    for index in range(50):
        assert progression.at(index) == value
        value, gap = value + gap, gap + progression.growth


@given(progressions, st.integers(0, 20_000))
def test_the_first_index_that_reaches_a_value(progression: Progression, value: int) -> None:
    index = 0
    while progression.at(index) < value:
        index += 1
    assert progression.first_reaching(value) == index


@given(st.integers(0, 10**15), st.integers(1, 10**12), st.integers(0, 10**8), st.integers(0, 10**7))
def test_it_is_found_to_the_tick_at_the_scale_of_a_run(first: int, gap: int, growth: int, index: int) -> None:
    """At ticks of 1e-13 s and millions of steps, where floating point could not."""
    progression = Progression(first, gap, growth)
    value = progression.at(index)
    assert progression.first_reaching(value) == index
    assert progression.first_reaching(value + 1) == index + 1


@st.composite
def decode_costs(draw: Any) -> DecodeCost:
    """Costs of one or two pieces; the latency of an idle GPU is at least its kernels' time."""
    pieces, base, until = [], draw(st.integers(1, 60)), draw(st.integers(1, 200))
    for end in (until, UNBOUNDED):
        slope, lead = draw(st.integers(0, 2)), draw(small)
        pieces.append(Piece(end, base, slope, base + lead, draw(st.integers(0, slope + 1))))
        base += slope * until
    return DecodeCost(draw(small), graph=False, padded=0, pieces=tuple(pieces))


class Stepped:
    """The recurrences of `simserve.engine.replica`, step by step."""

    def __init__(self, batch: Batch, num_steps: int, ready: int, end: int, update: int | None) -> None:
        self.starts, self.ends, self.gpu = [ready], [end], [0]
        num_decodes, context, cost = batch.num_decodes, batch.context, batch.cost
        for index in range(num_steps):
            time = cost.at(context + index * num_decodes)
            start, before = self.starts[-1], self.ends[-1]
            if update is None:
                self.ends.append(start + time.latency)
                self.starts.append(self.ends[-1])
            else:
                self.ends.append(max(before + time.gpu, start + time.latency))
                self.starts.append(max(start + time.cpu, before + update))
            self.gpu.append(self.gpu[-1] + time.gpu)
        self.tokens = [
            end if update is None else max(end, start + cost.cpu)
            for end, start in zip(self.ends[1:], self.starts[1:], strict=True)
        ]


batches = st.builds(Batch, st.integers(1, 9), st.integers(1, 250), decode_costs())


def compare(run: EqualSteps, stepped: Stepped) -> None:
    for index in range(run.num_steps):
        assert run.boundaries.at(index) == stepped.starts[index + 1]
        assert run.ends.at(index) == stepped.ends[index + 1]
        assert run.tokens.at(index) == stepped.tokens[index]
        assert run.gpu.at(index + 1) == stepped.gpu[index + 1]


@given(batches, st.integers(1, 60), st.integers(0, 100))
def test_synchronous_runs_are_those_of_stepping(batch: Batch, num_steps: int, ready: int) -> None:
    run = equal_steps(batch, num_steps, ready, ready, None)
    assert run is not None
    assert 1 <= run.num_steps <= num_steps
    compare(run, Stepped(batch, run.num_steps, ready, ready, None))


@given(batches, st.integers(1, 60), st.integers(0, 100), st.integers(0, 100), small)
def test_asynchronous_runs_are_those_of_stepping(
    batch: Batch, num_steps: int, ready: int, ahead: int, update: int
) -> None:
    """From any state, with or without a closed form; `tokens` of a step are sure only once the next one is decided."""
    end = ready + ahead
    run = equal_steps(batch, num_steps, ready, end, update)
    assume(run is not None and run.num_steps > 0)
    assert run is not None
    assert run.num_steps <= num_steps
    compare(run, Stepped(batch, run.num_steps, ready, end, update))


def test_the_gpu_and_the_host_can_each_set_the_pace() -> None:
    """Both closed forms exist, else the property above would say little."""
    gpu_bound = DecodeCost(2, graph=True, padded=0, pieces=(Piece(UNBOUNDED, 50, 1, 55, 1),))
    host_bound = DecodeCost(100, graph=True, padded=0, pieces=(Piece(UNBOUNDED, 5, 0, 110, 0),))
    one = equal_steps(Batch(3, 10, gpu_bound), 40, 0, 60, 1)
    other = equal_steps(Batch(3, 10, host_bound), 40, 0, 10, 1)
    assert one is not None
    assert other is not None
    assert (one.boundaries.growth, other.boundaries.growth) == (3, 0)
    assert one.num_steps == other.num_steps == 40


@given(batches, st.integers(2, 60), st.integers(0, 100), st.integers(0, 20_000))
def test_an_arrival_cuts_a_run_at_the_next_decision(batch: Batch, num_steps: int, ready: int, at: int) -> None:
    """The step decided at the first boundary not before `at` sees who came then; those decided before have passed."""
    run = equal_steps(batch, num_steps, ready, ready, None)
    assert run is not None
    starts = Stepped(batch, run.num_steps + 400, ready, ready, None).starts
    assume(at <= starts[run.num_steps])
    assert run.boundary_reaching(at) == next(start for start in starts if start >= at)
    assert run.steps_before(at) == min(run.num_steps, sum(start < at for start in starts))
