"""What a policy of one's own takes: a class over the ledger's verbs, and a line in the registry."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from random_scenarios import scenarios
from served import milliseconds, serve, served_once

from simserve.engine.plan import StepPlan
from simserve.engine.policies import SCHEDULERS
from simserve.engine.policies.summed import SummedScheduler
from simserve.engine.walk import walk
from simserve.spec.names import SchedulerName
from simserve.spec.scenario import Scenario


class ShortestPromptFirst(SummedScheduler):
    """A toy: of all who wait the one with the shortest prompt is admitted next; who runs is served as by vLLM."""

    def schedule(self) -> StepPlan:
        ledger = self.books
        ledger.num_calls += 1
        plan = StepPlan(ledger.num_steps)
        budget = walk(ledger, plan, self._max_tokens, self.longest_chunk())
        ledger.advance(plan)
        for request in sorted(ledger.waiting, key=lambda waiting: (waiting.num_tokens, waiting.arrival)):
            hit = ledger.pool.lookup(request)
            num_tokens = min(request.num_tokens - hit.num_blocks * ledger.block_size, budget)
            if plan.preempted or not num_tokens or len(ledger.running) == self._num_seats:
                break
            if not ledger.has_room(request, hit, num_tokens):
                break
            ledger.waiting.remove(request)
            ledger.waiting.appendleft(request)
            ledger.start(plan, request, hit)
            budget -= ledger.compute(plan, request, num_tokens)
        return ledger.end_step(plan)

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        """A run would end where anyone who waits, not the head alone, has room."""
        return 0 if self.ledger.waiting else super().steps_ahead(plan, enough)


def test_there_is_a_policy_for_each_name_of_the_scenario() -> None:
    assert set(SCHEDULERS) == set(get_args(SchedulerName))


@pytest.mark.plain_source
def test_the_toy_admits_the_shortest_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(0, 100, 5), (1, 90, 5), (2, 20, 5), (3, 50, 5)]
    one_seat = ("engine.max_num_seqs=1", "engine.async_scheduling=false")
    assert np.argsort(milliseconds(serve(rows, *one_seat), "first_token")).tolist() == [0, 1, 2, 3]
    monkeypatch.setitem(SCHEDULERS, "vllm_v1", ShortestPromptFirst)
    assert np.argsort(milliseconds(serve(rows, *one_seat), "first_token")).tolist() == [0, 2, 3, 1]


@pytest.mark.plain_source
@given(scenarios(engine={"scheduling_policy": "fcfs"}))
@settings(max_examples=40)
def test_the_toy_keeps_the_laws(question: Scenario) -> None:
    """Blocks, requests and tokens are the ledger's affair: a policy cannot lose any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCHEDULERS, "vllm_v1", ShortestPromptFirst)
        served_once(question)


WITHOUT = {
    "kv_allocation": "none",
    "scheduling_policy": "fcfs",
    "enable_prefix_caching": False,
    "async_scheduling": False,
    "max_num_batched_tokens": 4096,
    "long_prefill_token_threshold": 0,
}


@given(scenarios(engine=WITHOUT))
@settings(max_examples=40)
def test_without_kv_every_token_computes_its_text_again(question: Scenario) -> None:
    result = served_once(question)
    done = result.requests["output_len"] > 0
    if question.run.max_time is None:
        prompts, answers = result.requests["input_len"][done], result.requests["output_len"][done]
        assert result.steps["prefill_tokens"].sum() == (prompts * answers + answers * (answers - 1) // 2).sum()
    assert not result.steps["decodes"].any()
    assert not result.requests["num_preemptions"].any()


def test_without_kv_takes_those_first_who_wait_longest() -> None:
    """Two texts of which a step holds both up to 32 tokens each: from then on they take turns."""
    result = serve(
        [(0, 30, 6), (0, 30, 6)], "engine.kv_allocation=none", "engine.max_model_len=64",
        "engine.max_num_batched_tokens=64",
    )  # fmt: skip
    assert milliseconds(result, "first_token") == [10, 10]
    assert milliseconds(result, "finish") == [80, 90]
