"""The fast scheduler decides exactly what the plain restatement of vLLM's rules does, on thousands of random workloads.

Stepping, and with runs of equal steps decided at once and cut at random; every field of every step. Wrong schedulers
show that the random workloads can tell: each rule of the oracle is changed in turn, and so is the fast scheduler.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest
import scheduler_mutations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle_mutations import MUTATIONS, mutant
from recorder import drive
from workloads import large_workload, random_workload, workloads

from simserve.validation import replay as replay_module
from simserve.validation.fidelity import Difference, find_difference
from simserve.validation.recording import Json, SchedulerWorkload, parse_workload
from simserve.validation.replay import Replay, replay

BLOCK = 500
NUM_BLOCKS = 6
MOST = 4000
"""Random workloads within which every mutation must be caught."""


def replay_with_cuts(workload: SchedulerWorkload, rng: Random) -> Json:
    """Replay with runs decided at once, cut short at random as arrivals and other replicas do."""
    run = Replay(workload)
    steps: list[Json] = []
    while not run.is_over:
        steps += run.jump(rng.choice([1, 2, 3, 5, 1000])) or [run.step()]
        run.scheduler.pool.check()
    return run.trace(steps)


def first_difference(workload: dict, oracle: Json, cuts: Random) -> Difference | None:
    """Where the fast scheduler leaves the oracle, stepping or with runs."""
    parsed = parse_workload(workload)
    stepping = find_difference(replay(parsed), oracle)
    return stepping or find_difference(replay_with_cuts(parsed, cuts), oracle, "runs")


def assert_equal_on(seeds: range, generate: Callable[[Random], dict] = random_workload) -> None:
    for seed in seeds:
        workload = generate(Random(seed))
        assert first_difference(workload, drive(workload), Random(seed)) is None, f"seed {seed}"


@pytest.mark.parametrize("block", range(NUM_BLOCKS))
def test_equal_on_random_workloads(block: int) -> None:
    assert_equal_on(range(BLOCK * block, BLOCK * (block + 1)))


def test_equal_on_large_workloads() -> None:
    assert_equal_on(range(25), large_workload)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1, 20))
def test_equal_on_many_large_workloads(block: int) -> None:
    assert_equal_on(range(25 * block, 25 * (block + 1)), large_workload)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(NUM_BLOCKS, 30 * NUM_BLOCKS))
def test_equal_on_many_random_workloads(block: int) -> None:
    assert_equal_on(range(BLOCK * block, BLOCK * (block + 1)))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(workload=workloads(), cuts=st.randoms(use_true_random=False))
def test_equal_on_workloads_that_hypothesis_shrinks(workload: dict, cuts: Random) -> None:
    assert first_difference(workload, drive(workload), cuts) is None


def random_workloads() -> Iterator[tuple[int, dict]]:
    return ((seed, random_workload(Random(seed))) for seed in range(MOST))


@pytest.mark.parametrize("name", MUTATIONS)
def test_random_workloads_tell_every_rule_of_the_oracle(name: str) -> None:
    wrong = mutant(name).Scheduler

    def differs(workload: dict) -> bool:
        try:
            return find_difference(drive(workload, wrong), drive(workload)) is not None
        except (IndexError, KeyError, ValueError):  # a mutant may lose track of its own blocks
            return True

    assert any(differs(workload) for _, workload in random_workloads())


@pytest.mark.parametrize("wrong", scheduler_mutations.ALL, ids=lambda wrong: wrong.__name__)
def test_a_wrong_fast_scheduler_is_caught(wrong: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "Scheduler", wrong)

    def differs(seed: int, workload: dict) -> bool:
        try:
            return first_difference(workload, drive(workload), Random(seed)) is not None
        except (AssertionError, IndexError, KeyError):  # its own checks stopped it
            return True

    assert any(differs(seed, workload) for seed, workload in random_workloads())
