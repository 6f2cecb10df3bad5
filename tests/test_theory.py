"""Queueing theory: what is known of simple queues holds for the engine when every step takes the same time.

With `constant_step` = s a request of L tokens occupies its seat for L steps, so its service time is L s. One seat is
then the single server queue in continuous time, since an idle engine starts a step the moment a request comes. With k
seats the busy engine admits only between two steps: the M/M/k queue in slotted time, whose mean wait follows exactly
from a small Markov chain (`slotted_wait`) and tends to Erlang's formula as answers get long.
"""

from collections.abc import Callable
from heapq import heapreplace
from math import exp, factorial, sqrt
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scenario_text import scenario
from single_steps import ticks

from simserve.simulation import simulate
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario

STEP = 0.01
STEP_TICKS = int(ticks(np.array(STEP)))
NO_DOOR = "{front_end_per_request: 0, front_end_per_token: 0, delivery: 0}"
THEORY = (
    *(f"cost={{constant_step: {STEP}, host: {NO_DOOR}}}", "workload.input=10"),
    *("engine.async_scheduling=false", "engine.max_num_batched_tokens=8192"),
)
ANSWERS = {
    "deterministic": "workload.output=5",
    "uniform": "workload.output={distribution: uniform, min: 1, max: 9}",
    "two-valued": "workload.output={distribution: empirical, values: [1, 1, 1, 17]}",
}
MOMENTS = {"deterministic": (5.0, 25.0), "uniform": (5.0, 95 / 3), "two-valued": (5.0, 73.0)}
"""Mean and mean square of the number of tokens."""


def question(seats: int, rate: float, *overrides: str) -> Scenario:
    return scenario(*THEORY, f"engine.max_num_seqs={seats}", f"workload.arrivals.rate={rate}", *overrides)


def waits(result: Result) -> NDArray[np.int64]:
    """Ticks from arrival to admission."""
    return ticks(result.requests["scheduled"]) - ticks(result.requests["arrival"])


def mean_wait_agrees(make: Callable[[int], Scenario], expected: float, warmup: int) -> None:
    """The 99.9 % interval (Student's t) over 20 independent replications covers the expected mean wait (seconds)."""
    means = np.array([waits(simulate(make(seed)))[warmup:].mean() for seed in range(20)]) / ticks(np.array(1.0))
    half_width = 3.8834 * means.std(ddof=1) / sqrt(len(means))
    assert abs(means.mean() - expected) <= half_width, (means.mean(), expected, half_width)
    assert half_width < 0.35 * expected


# One seat


@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("load", [0.3, 0.7, 0.95, 1.5])
@pytest.mark.parametrize("mode", ["true", "false"])
def test_each_wait_is_that_of_lindleys_recursion(answers: str, load: float, mode: str) -> None:
    """W_{n+1} = max(0, W_n + S_n - (A_{n+1} - A_n)), to the tick (Lindley 1952). With one seat an asynchronous engine
    has nothing to decide ahead, and serves alike."""
    result = simulate(question(1, load / (5 * STEP), ANSWERS[answers], f"engine.async_scheduling={mode}"))
    arrival, service = ticks(result.requests["arrival"]), result.requests["output_len"] * STEP_TICKS
    wait, expected = 0, [0]
    for gap, length in zip(np.diff(arrival).tolist(), service.tolist(), strict=False):
        wait = max(0, wait + length - gap)
        expected.append(wait)
    np.testing.assert_array_equal(waits(result), expected)
    np.testing.assert_array_equal(ticks(result.requests["finish"]), arrival + expected + service)


def pollaczek_khinchine(rate: float, answers: str) -> float:
    """Mean wait of M/G/1: rate E[S^2] / (2 (1 - rho)) (Kleinrock, Queueing Systems, vol. 1, 1975, section 5.6)."""
    mean, square = MOMENTS[answers]
    return rate * square * STEP**2 / (2 * (1 - rate * mean * STEP))


@pytest.mark.parametrize("answers", ["deterministic", "two-valued"])
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_mean_wait_of_one_seat_is_pollaczek_khinchine(answers: str, load: float) -> None:
    check_pollaczek_khinchine(answers, load, 1500, 100)


@pytest.mark.slow
@pytest.mark.parametrize("answers", ANSWERS)
def test_mean_wait_of_one_seat_at_90_percent_is_pollaczek_khinchine(answers: str) -> None:
    check_pollaczek_khinchine(answers, 0.9, 20_000, 2000)


def check_pollaczek_khinchine(answers: str, load: float, count: int, warmup: int) -> None:
    rate = load / (5 * STEP)

    def make(seed: int) -> Scenario:
        return question(1, rate, ANSWERS[answers], f"seed={seed}", f"workload.num_requests={count}")

    mean_wait_agrees(make, pollaczek_khinchine(rate, answers), warmup)


# Several seats


def slotted_wait(rate: float, seats: int, stop: float) -> float:
    """Mean wait (seconds) of Poisson arrivals at `seats` servers that begin and end only between steps of length STEP,
    each busy one ending with probability `stop` (answers are geometric).

    X, the number in the system when a step begins, is a Markov chain: X' = X - Binomial(min(X, seats), stop) +
    Poisson(rate STEP), and from 0 the next step begins at an arrival, with X = 1. Over a step of length STEP there are
    X + rate STEP / 2 requests on average, while idle none; Little's law turns the time average into a sojourn time.
    """
    size = 400
    came = poisson(rate * STEP, size)
    into = np.zeros((size, size))
    for number in range(1, size):
        ends = binomial(min(number, seats), stop)
        for ended, chance in enumerate(ends):
            left = number - ended
            into[number, left:] += chance * came[: size - left]
    empty = into[:, 0].copy()
    into[:, 1] += into[:, 0]
    into[:, 0] = 0
    share = np.linalg.solve((into[1:, 1:].T - np.eye(size - 1)) + np.ones((size - 1, size - 1)), np.ones(size - 1))
    share /= share.sum()
    cycle = STEP + share @ empty[1:] / rate
    in_system = STEP * (share @ np.arange(1, size) + rate * STEP / 2) / cycle
    return float(in_system / rate - STEP / stop)


def poisson(mean: float, size: int) -> NDArray[np.float64]:
    """Probabilities of 0, 1, ... (those beyond `size` are below the last bit)."""
    chances = np.empty(size)
    chances[0] = exp(-mean)
    for number in range(1, size):
        chances[number] = chances[number - 1] * mean / number
    return chances


def binomial(trials: int, chance: float) -> NDArray[np.float64]:
    found = np.ones(1)
    for _ in range(trials):
        found = np.convolve(found, [1 - chance, chance])
    return found


def erlang_wait(rate: float, seats: int, mean: float) -> float:
    """Mean wait of M/M/k: Erlang's C / (k / mean - rate) (Kleinrock 1975, section 3.5)."""
    load = rate * mean
    blocked = load**seats / factorial(seats) * seats / (seats - load)
    some = blocked / (sum(load**number / factorial(number) for number in range(seats)) + blocked)
    return some / (seats / mean - rate)


@pytest.mark.parametrize("seats", [1, 2, 4])
def test_the_slotted_queue_is_erlangs_but_for_a_part_of_a_step(seats: int) -> None:
    """However long the answers, so that the mean wait tends to that of M/M/k in relative terms."""
    for length in (25, 50, 100, 200):
        rate = 0.7 * seats / (length * STEP)
        assert abs(slotted_wait(rate, seats, 1 / length) - erlang_wait(rate, seats, length * STEP)) < 1.5 * STEP


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_the_slotted_queue_of_one_seat_is_pollaczek_khinchine(load: float) -> None:
    """Geometric answers of mean L have mean square (2 - 1/L) L^2."""
    length = 10
    rate = load / (length * STEP)
    expected = rate * (2 - 1 / length) * (length * STEP) ** 2 / (2 * (1 - load))
    assert slotted_wait(rate, 1, 1 / length) == pytest.approx(expected, rel=1e-6)


def geometric_trace(folder: Path, seed: int, rate: float, stop: float, count: int) -> str:
    """A trace of Poisson arrivals and geometric answers."""
    rng = np.random.default_rng(seed)
    arrival, output = np.cumsum(rng.exponential(1 / rate, count)), rng.geometric(stop, count)
    rows = [f"{time:.9f},10,{length}" for time, length in zip(arrival.tolist(), output.tolist(), strict=True)]
    path = folder / f"{seed}.csv"
    path.write_text("\n".join(["arrival,input_len,output_len", *rows]))
    return f"workload={{trace: {{file: {path}, format: csv}}}}"


def check_slotted(folder: Path, seats: int, load: float, count: int, warmup: int) -> None:
    stop = 0.1
    rate = load * seats * stop / STEP

    def make(seed: int) -> Scenario:
        trace = geometric_trace(folder, seed, rate, stop, count)
        return scenario(*THEORY, f"engine.max_num_seqs={seats}", trace)

    mean_wait_agrees(make, slotted_wait(rate, seats, stop), warmup)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_mean_wait_of_four_seats_is_that_of_the_slotted_queue(load: float, tmp_path: Path) -> None:
    check_slotted(tmp_path, 4, load, 1000, 100)


@pytest.mark.slow
@pytest.mark.parametrize("seats", [2, 8])
def test_mean_wait_of_several_seats_at_90_percent_is_that_of_the_slotted_queue(seats: int, tmp_path: Path) -> None:
    check_slotted(tmp_path, seats, 0.9, 20_000, 2000)


@pytest.mark.parametrize("load", [0.5, 0.9, 1.2])
def test_each_wait_at_several_seats_is_that_of_kiefer_and_wolfowitz(load: float) -> None:
    """Request n begins at the first border of steps at which it is there and the earliest seat is free (Kiefer and
    Wolfowitz 1955, with starts rounded up to the borders of the busy period it falls in), to the tick."""
    seats = 3
    result = simulate(question(seats, load * seats / (5 * STEP), ANSWERS["uniform"], "workload.num_requests=500"))
    arrival, service = ticks(result.requests["arrival"]), result.requests["output_len"] * STEP_TICKS
    free = [0] * seats
    origin, expected = 0, []
    for came, length in zip(arrival.tolist(), service.tolist(), strict=True):
        if came >= max(free):
            origin = came
        border = origin + -(-(came - origin) // STEP_TICKS) * STEP_TICKS
        start = max(border, free[0])
        expected.append(start)
        heapreplace(free, start + length)
    np.testing.assert_array_equal(ticks(result.requests["scheduled"]), expected)


# Throughput and overload


@pytest.mark.parametrize("seats", [1, 3, 16])
def test_saturated_throughput_is_seats_over_service_time(seats: int) -> None:
    """All at once, equal answers: every seat is taken all the time, to the last tick."""
    rounds = 7
    offline = ("workload.arrivals={process: all_at_once}", f"workload.num_requests={seats * rounds}")
    result = simulate(scenario(*THEORY, *offline, f"engine.max_num_seqs={seats}", "workload.output=12"))
    assert ticks(result.requests["finish"]).max() == rounds * 12 * STEP_TICKS
    np.testing.assert_array_equal(result.steps["running"], seats)


@pytest.mark.parametrize("seats", [1, 8])
@pytest.mark.parametrize(("process", "load", "count"), [("constant", 1.2, 2000), ("poisson", 2.0, 20_000)])
def test_overloaded_queue_grows_as_the_excess(seats: int, process: str, load: float, count: int) -> None:
    """Number in the system at t: (rate - seats / service time) t within 5 %, at any time late enough to be smooth."""
    capacity = seats / (5 * STEP)
    overload = ("workload.output=5", f"workload.num_requests={count}", f"workload.arrivals.process={process}")
    result = simulate(question(seats, load * capacity, *overload))
    arrival, finish = result.requests["arrival"], np.sort(result.requests["finish"])
    for time in np.linspace(0.5, 1.0, 6) * arrival[-1]:
        in_system = np.searchsorted(arrival, time) - np.searchsorted(finish, time)
        assert in_system == pytest.approx((load - 1) * capacity * time, rel=0.05)


# Identities without any assumption


@pytest.mark.parametrize("rate", [2, 20, 60])
@pytest.mark.parametrize("cost", ["cost.constant_step=10 ms", "cost.level=auto"])
def test_littles_law_holds_exactly(rate: float, cost: str) -> None:
    """To the tick, whatever the step times: the step log's integral of `running` is the sum over requests of
    finish - scheduled, that of `waiting` the sum of scheduled - first decision after the arrival, and the integral of
    the number of requests that have come and not gone the sum of their sojourn times."""
    engine = ("engine.async_scheduling=false", "engine.max_num_seqs=8", f"cost.host={NO_DOOR}", cost)
    traffic = (f"workload.arrivals.rate={rate}", "workload.output={distribution: uniform, min: 1, max: 200}")
    result = simulate(scenario(*engine, *traffic, "run.resolution=steps"))
    requests, steps = result.requests, result.steps
    arrival, scheduled, finish = (ticks(requests[name]) for name in ("arrival", "scheduled", "finish"))
    start, lasts = ticks(steps["start"]), ticks(steps["end"]) - ticks(steps["start"])
    assert (steps["running"] * lasts).sum() == (finish - scheduled).sum()
    noticed = start[np.searchsorted(start, arrival)]
    assert (steps["waiting"] * lasts).sum() == (scheduled - noticed).sum()
    events = np.concatenate((arrival, finish))
    order = np.argsort(events, kind="stable")
    in_system = np.cumsum(np.repeat([1, -1], len(arrival))[order])
    assert (in_system[:-1] * np.diff(events[order])).sum() == (finish - arrival).sum()


@pytest.mark.parametrize("think_time", [0, 0.07])
@pytest.mark.parametrize("users", [1, 5])
def test_closed_loop_obeys_the_response_time_law(users: int, think_time: float) -> None:
    """X (R + Z) = N (Denning and Buzen 1978), to the tick: each of N users either waits for an answer or thinks, so
    that all sojourn and think times together are the time from 0 to the last answer, summed over the users."""
    loop = f"workload.arrivals={{process: closed_loop, users: {users}, think_time: {think_time}}}", "workload.jitter=0"
    requests = simulate(scenario(*loop, "workload.num_requests=60", "engine.max_num_seqs=3")).requests
    arrival, finish, think = ticks(requests["arrival"]), ticks(requests["finish"]), int(ticks(np.array(think_time)))
    last_answers: list[int] = []
    for came, gone in sorted(zip(arrival.tolist(), finish.tolist(), strict=True)):
        if came:
            last_answers.remove(came - think)
        last_answers.append(gone)
    assert len(last_answers) == users
    assert (finish - arrival).sum() + think * (len(arrival) - users) == sum(last_answers)
