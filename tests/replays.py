"""A random workload through the fast scheduler, and where it leaves the oracle."""

from random import Random

from simserve.validation.fidelity import Difference, find_difference
from simserve.validation.recording import Json, SchedulerWorkload, parse_workload
from simserve.validation.replay import Replay, replay


def replay_with_cuts(workload: SchedulerWorkload, rng: Random) -> Json:
    """Replay with runs decided at once, cut short at random as arrivals and other replicas do."""
    run = Replay(workload)
    steps: list[Json] = []
    while not run.is_over:
        steps += run.jump(rng.choice([1, 2, 3, 5, 1000])) or [run.step()]
        run.scheduler.ledger.pool.check()
    return run.trace(steps)


def first_difference(workload: dict, oracle: Json, cuts: Random) -> Difference | None:
    """Where the fast scheduler leaves the oracle, stepping or with runs."""
    parsed = parse_workload(workload)
    stepping = find_difference(replay(parsed), oracle)
    return stepping or find_difference(replay_with_cuts(parsed, cuts), oracle, "runs")
