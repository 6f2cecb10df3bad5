"""The random workloads of tests/test_exact.py can tell: wrong schedulers are caught.

Each rule of the oracle is changed in turn, and so is the fast scheduler, whose plain source alone can be subclassed
(tests/conftest.py).
"""

from collections.abc import Iterator
from random import Random
from types import ModuleType

import pytest
import scheduler_mutations
from oracle_mutations import MUTATIONS, mutant
from recorder import drive
from replays import first_difference
from workloads import random_workload

from simserve.engine.policies import summed
from simserve.validation import replay as replay_module
from simserve.validation.fidelity import find_difference

MOST = 4000
"""Random workloads within which every mutation must be caught."""


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


WRONG = [*((summed, "SummedLedger", ledger) for ledger in scheduler_mutations.LEDGERS),
         *((replay_module, "VllmV1", policy) for policy in scheduler_mutations.POLICIES)]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "wrong"), WRONG, ids=[wrong.__name__ for _, _, wrong in WRONG])
def test_a_wrong_fast_scheduler_is_caught(
    module: ModuleType, name: str, wrong: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)

    def differs(seed: int, workload: dict) -> bool:
        try:
            return first_difference(workload, drive(workload), Random(seed)) is not None
        except (AssertionError, IndexError, KeyError):  # its own checks stopped it
            return True

    assert any(differs(seed, workload) for seed, workload in random_workloads())
