"""Prompts before decodes: against a plain restatement of the policy, in every field of every step, and in time."""

from collections.abc import Iterable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from oracle import Plan, Request, Scheduler
from random_scenarios import scenarios
from recorder import drive
from scenario_text import scenario
from test_skipping import assert_same, both_ways
from workloads import large_workload, random_workload

from simserve.engine.policies.prefill_first import PrefillFirst
from simserve.simulation import simulate
from simserve.spec.result import COMPLETED, REJECTED
from simserve.spec.scenario import Scenario
from simserve.validation.fidelity import find_difference
from simserve.validation.recording import parse_workload
from simserve.validation.replay import Replay


class Restated(Scheduler):
    """The policy on top of the plain restatement of vLLM's rules: blocks are objects, every request is visited."""

    def __init__(self, config: dict) -> None:
        super().__init__(config)
        self.decoding: set[Request] = set()

    def schedule(self, step: int) -> Plan:
        plan = Plan(step)
        self.unannounced = False
        self.budget = self.config["max_num_batched_tokens"]
        alone = len(self.running) + len(self.waiting) == 1
        self.threshold = 0 if alone else self.config["long_prefill_token_threshold"]
        self.serve(plan, [request for request in self.running if request not in self.decoding])
        if not plan.preempted:
            self.schedule_waiting(plan)
        if not plan.scheduled:
            self.budget, self.threshold = 1 << 30, 0
            self.serve(plan, list(self.running))
        for request, num_tokens in plan.scheduled.items():
            request.num_computed += num_tokens
            if request.num_computed == len(request.tokens) + request.num_placeholders:
                plan.sampling.add(request)
                self.decoding.add(request)
                request.num_placeholders += self.config["async_scheduling"]
        return plan

    def serve(self, plan: Plan, requests: Iterable[Request]) -> None:
        for request in requests:
            if self.budget <= 0:
                return
            num_tokens = self.tokens_wanted(request)
            while num_tokens and request.status == "running" and not self.fits(request, num_tokens):
                victim = max(self.running, key=lambda r: r.rank) if self.is_priority else self.running[-1]
                self.budget += plan.scheduled.pop(victim, 0)
                self.preempt(victim)
                plan.preempted.append(victim)
            if num_tokens and request.status == "running":
                self.allocate(request, num_tokens)
                plan.scheduled[request] = num_tokens
                self.budget -= num_tokens

    def preempt(self, request: Request) -> None:
        super().preempt(request)
        self.decoding.discard(request)


def replayed(workload: dict, cuts: Random | None = None) -> dict:
    """Trace of simserve's own scheduler: step by step, or with runs of equal steps that are cut at random."""
    run = Replay(parse_workload(workload))
    run.scheduler = PrefillFirst(run.scheduler.config)
    steps: list[dict] = []
    while not run.is_over:
        steps += (run.jump(cuts.choice([1, 2, 3, 5, 1000])) if cuts else []) or [run.step()]
        run.scheduler.ledger.pool.check()
    return run.trace(steps)


def assert_same_decisions(workload: dict, seed: int) -> None:
    restated = drive(workload, Restated)
    assert find_difference(replayed(workload), restated) is None, f"seed {seed}"
    assert find_difference(replayed(workload, Random(seed)), restated, "runs") is None, f"seed {seed}"


@pytest.mark.parametrize("block", range(4))
def test_decides_what_the_plain_restatement_decides(block: int) -> None:
    for seed in range(150 * block, 150 * (block + 1)):
        assert_same_decisions(random_workload(Random(seed)), seed)


def test_decides_the_same_on_large_workloads() -> None:
    for seed in range(10):
        assert_same_decisions(large_workload(Random(seed)), seed)


@pytest.mark.slow
def test_decides_the_same_on_many_workloads() -> None:
    for seed in range(600, 12_000):
        assert_same_decisions(random_workload(Random(seed)), seed)


@pytest.mark.plain_source
def test_a_restatement_of_another_policy_is_told_apart() -> None:
    """The comparison above can fail: vLLM's own rules mix prompts and decodes."""
    differing = [
        find_difference(replayed(random_workload(Random(seed))), drive(random_workload(Random(seed))))
        for seed in range(20)
    ]
    assert sum(difference is not None for difference in differing) > 10


@given(scenarios(engine={"scheduler": "prefill_first"}))
@settings(max_examples=60)
def test_a_step_takes_prompts_or_decodes(question: Scenario) -> None:
    runs, steps = both_ways(question)
    assert_same(runs, steps)
    rows = runs.steps
    assert not np.any((rows["prefill_tokens"] > 0) & (rows["decodes"] > 0))
    if question.run.max_time is None:
        assert np.all(np.isin(runs.requests["status"], (COMPLETED, REJECTED)))


@pytest.mark.parametrize("mode", ["true", "false"])
def test_decodes_wait_while_prompts_come(mode: str) -> None:
    """Prompts in every step for a while: nobody who decodes gets a token, and all get theirs when they are through."""
    question = scenario(
        "engine.scheduler=prefill_first", f"engine.async_scheduling={mode}", "workload.arrivals={process: all_at_once}",
        "engine.max_num_batched_tokens=512", "workload.num_requests=5", "workload.output=3", "cost.constant_step=10 ms",
    )  # fmt: skip
    result = simulate(question)
    assert result.steps["prefill_tokens"][:5].tolist() == [512] * 5
    assert result.requests["first_step"].tolist() == [0, 1, 2, 3, 4]
    assert result.requests["last_step"].tolist() == [6] * 5
    longer = sorted(
        zip(*(result.gaps[name].tolist() for name in ("request", "step_before", "step_after")), strict=True)
    )
    assert longer == [(0, 0, 5), (1, 1, 5), (2, 2, 5), (3, 3, 5)]
