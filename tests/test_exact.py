"""The fast scheduler decides exactly what the plain restatement of vLLM's rules does, on thousands of random workloads.

Stepping, and with runs of equal steps decided at once and cut at random; every field of every step. That the random
workloads can tell a wrong scheduler, tests/test_mutations.py shows.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorder import drive
from replays import first_difference
from workloads import large_workload, random_workload, workloads

BLOCK = 500
NUM_BLOCKS = 6


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
