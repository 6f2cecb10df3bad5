"""HBM bandwidth is shared max-min fairly among kernels and copies, and every byte is accounted for."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.cost.operators import Kernel
from simserve.engine.clock import Clock
from simserve.engine.gpu.bandwidth import Bandwidth
from simserve.engine.gpu.trace import Trace
from simserve.spec.ticks import TICKS_PER_SECOND

RATE = 1.0 * TICKS_PER_SECOND
"""One byte per tick, so that bytes and ticks are the same numbers."""

Run = tuple[int, Kernel]
"""When somebody comes, and what they have to move."""


def streaming(ticks: int) -> Kernel:
    """Memory sets its pace: it takes all of the bandwidth."""
    return Kernel("streaming", "linear", float(ticks), 0.0, ticks, "memory")


def computing(ticks: int, num_bytes: float) -> Kernel:
    """Something else sets its pace, and it moves `num_bytes` meanwhile."""
    return Kernel("computing", "linear", num_bytes, 1e9, ticks, "compute")


def ends(runs: Sequence[Run]) -> list[int]:
    """The tick at which each of them is done; all bytes have moved by then, and never more at once than there are."""
    clock, trace = Clock(), Trace()
    bandwidth = Bandwidth(clock, RATE, trace)
    done = [0] * len(runs)

    def run(index, at, kernel):
        yield clock.timeout(at)
        flow = bandwidth.start(kernel)
        yield flow.end
        bandwidth.stop(flow)
        done[index] = int(clock.now)

    for index, (at, kernel) in enumerate(runs):
        clock.process(run(index, at, kernel))
    clock.run()
    rates = [kernels + copies for _, kernels, copies in trace.levels]
    assert max(rates) <= RATE * (1 + 1e-9)
    assert rates[-1] == 0.0
    times = [at for at, _, _ in trace.levels]
    moved = sum(rate / RATE * (until - at) for rate, (at, until) in zip(rates, pairwise(times), strict=False))
    assert moved == pytest.approx(sum(min(kernel.bytes, kernel.ticks) for _, kernel in runs), rel=1e-6, abs=20.0)
    return done


def test_alone_a_kernel_takes_its_ticks() -> None:
    assert ends([(5, streaming(1000))]) == [1005]
    assert ends([(0, computing(1000, 400.0))]) == [1000]


def test_two_that_want_all_get_half_each() -> None:
    assert ends([(0, streaming(1000)), (0, streaming(1000))]) == [2000, 2000]


def test_who_stays_gets_all_again() -> None:
    """The shorter needs 500 bytes at half the rate; the longer has moved 500 of 1,000 by then."""
    assert ends([(0, streaming(1000)), (0, streaming(500))]) == [1500, 1000]


def test_who_comes_later_slows_what_is_left() -> None:
    """600 bytes are left at 400. Both get half: 300 bytes are through at 1,000, and of the first 300 are left."""
    assert ends([(0, streaming(1000)), (400, streaming(300))]) == [1300, 1000]


def test_a_kernel_bound_by_memory_loses_what_a_slow_link_takes() -> None:
    """A link at a quarter of the bandwidth leaves three quarters: 900 bytes take 1,200 ticks."""
    link = Kernel("copy", "copy", 1000.0, 0.0, 4000, "link")
    kernel, copy = ends([(0, streaming(900)), (0, link)])
    assert kernel == pytest.approx(1200, abs=1)
    assert copy == 4000


def test_a_kernel_bound_by_compute_is_not_slowed_by_one_copy() -> None:
    """It wants 0.4; of the copy's 900 bytes 0.6 x 1,000 are through when it ends, the other 300 take 300 ticks."""
    kernel, copy = ends([(0, computing(1000, 400.0)), (0, streaming(900))])
    assert kernel == 1000
    assert copy == pytest.approx(1300, abs=1)


def test_a_kernel_bound_by_compute_is_slowed_once_its_own_share_binds() -> None:
    """It wants 0.6 and gets 0.5 beside one copy: 1.2 times as long. With 0.4 it takes four to bind: 0.25, 1.6 times."""
    assert ends([(0, computing(1000, 600.0)), (0, streaming(5000))])[0] == pytest.approx(1200, abs=1)
    copies = [(0, streaming(5000))] * 3
    assert ends([(0, computing(1000, 400.0)), *copies])[0] == pytest.approx(1600, abs=1)


def test_a_kernel_without_bytes_is_never_slowed() -> None:
    assert ends([(0, computing(1000, 0.0)), *[(0, streaming(5000))] * 9])[0] == 1000


def test_what_a_kernel_moves_beyond_the_bandwidth_comes_from_l2() -> None:
    """It takes all of the bandwidth and no more, so that beside a copy it takes twice as long and not six times."""
    assert ends([(0, computing(1000, 3000.0)), (0, streaming(5000))])[0] == 2000


def test_nothing_to_do_takes_no_time() -> None:
    nothing = Kernel("nothing", "linear", 0.0, 0.0, 0, "floor")
    assert ends([(3, nothing), (0, streaming(10))]) == [3, 10]


KERNELS = st.one_of(
    st.integers(1, 10**9).map(streaming),
    st.tuples(st.integers(1, 10**9), st.floats(0.0, 1.5)).map(lambda drawn: computing(drawn[0], drawn[0] * drawn[1])),
)
RUNS = st.lists(st.tuples(st.integers(0, 10**9), KERNELS), min_size=1, max_size=8)


@given(RUNS)
def test_nobody_is_faster_than_alone(runs: list[Run]) -> None:
    assert all(end >= at + kernel.ticks for (at, kernel), end in zip(runs, ends(runs), strict=True))


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8))
def test_bandwidth_that_somebody_wants_is_never_idle(sizes: list[int]) -> None:
    last = max(ends([(0, streaming(size)) for size in sizes]))
    assert sum(sizes) <= last <= sum(sizes) + len(sizes)


@given(RUNS, KERNELS)
def test_who_comes_too_makes_nobody_faster(runs: list[Run], more: Kernel) -> None:
    before, after = ends(runs), ends([*runs, (10**8, more)])
    assert all(late >= early - len(runs) for early, late in zip(before, after, strict=False))
