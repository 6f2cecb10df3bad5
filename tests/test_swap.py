"""Preemption by swapping: nothing is lost on the way, and it is recomputation where there is nowhere to swap to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario
from served import milliseconds, serve
from single_steps import single_steps, ticks
from test_request_wise import assert_same_requests
from test_skipping import assert_same, both_ways

from simserve.engine.pace.kernels import Kernels
from simserve.engine.plan import StepPlan
from simserve.engine.policies.swap import Swap
from simserve.engine.request import SWAPPED, Request
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import Simulation, simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, REJECTED, TIMED_OUT
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import TICKS_PER_SECOND

SWAP: dict[str, Any] = {"preemption": "swap", "async_scheduling": None}
SLOW_LINK = {"base": "h100-sxm-80gb", "interconnect": {"host_bandwidth": 2e8}}
"""A block of 16 tokens, 2 MiB, takes about 10 ms: as long as a step."""
BLOCK_BYTES = 2 * 32 * 8 * 128 * 2 * 16
"""Keys and values of 16 tokens: 32 layers, 8 heads of 128 numbers of 2 bytes."""
MILLISECOND = TICKS_PER_SECOND // 1000
NOWHERE = {"preemption": "swap", "async_scheduling": None, "swap_space": 0, "scheduling_policy": "fcfs"}


SQUEEZED = scenario(
    "engine.preemption=swap", "engine.max_model_len=1024", "engine.num_gpu_blocks=150", "workload.num_requests=40",
    "workload.arrivals.rate=100", "workload.input=100", "workload.output={distribution: uniform, min: 100, max: 400}",
    "engine.enable_prefix_caching=false", "cluster.gpu={base: h100-sxm-80gb, interconnect: {host_bandwidth: 2e9}}",
)  # fmt: skip


@given(scenarios(engine=NOWHERE))
@settings(max_examples=40)
def test_without_cpu_memory_it_is_recomputation(question: Scenario) -> None:
    swapping = simulate(question)
    plain = ["engine.preemption=recompute", "engine.swap_space=null", "engine.async_scheduling=false"]
    recomputing = simulate(question.with_overrides(plain))
    assert swapping.meta["num_swaps"] == 0
    assert_same_requests(swapping, recomputing)
    left, right = single_steps(swapping), single_steps(recomputing)
    for name in right:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


class Accountant(Swap):
    """Where every block and every request is, after everything that happens. Blocks are not shared."""

    total_cpu_blocks = -1
    checks = 0
    away = 0

    def schedule(self) -> StepPlan:
        if self.total_cpu_blocks < 0:
            self.total_cpu_blocks = self.num_free_cpu_blocks
        plan = super().schedule()
        self.check()
        return plan

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        finished = super().complete(plan)
        self.check()
        return finished

    def copied(self, request: Request) -> None:
        super().copied(request)
        self.check()

    def check(self) -> None:
        places = [*self.ledger.waiting, *self.ledger.running, *self.swapped, *self.leaving, *self.returning]
        assert len(places) == len(set(places)) == len(self.unfinished()), "a request is in two places, or in none"
        assert len(self.ledger.running) + len(self.returning) <= self.config.max_num_seqs
        size = self.ledger.block_size
        for request in (*self.swapped, *self.leaving, *self.returning):
            assert request.state is SWAPPED
            assert 0 < request.num_computed_tokens < request.num_tokens, "a token is lost on the way"
        on_gpu = [*self.ledger.running, *self.leaving, *self.returning]
        held = sum(request.num_blocks for request in on_gpu)
        assert held + self.ledger.pool.num_free == self.ledger.pool.num_blocks, "a block is lost"
        in_cpu_memory = [*self.swapped, *self.leaving, *self.returning]
        copies = sum(-(-request.num_computed_tokens // size) for request in in_cpu_memory)
        assert copies + self.num_free_cpu_blocks == self.total_cpu_blocks, "a block of CPU memory is lost"
        Accountant.checks += 1
        Accountant.away += len(in_cpu_memory)


SPACES = st.sampled_from([0, 20e6, 200e6, 64e9])


@pytest.mark.plain_source
@given(scenarios(engine=SWAP | {"enable_prefix_caching": False}, cluster={"gpu": SLOW_LINK}), SPACES)
@settings(max_examples=60, deadline=None)
def test_blocks_and_requests_are_conserved_here_there_and_on_the_way(question: Scenario, space: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simserve.simulation.replicas.Swap", Accountant)
        result = simulate(question.with_overrides([f"engine.swap_space={space}"]))
    if question.run.max_time is None:
        assert np.all(np.isin(result.requests["status"], (COMPLETED, REJECTED)))
    if space == 64e9:  # nothing is computed twice
        assert result.meta["num_swaps"] == result.meta["num_preemptions"]
        if question.run.max_time is None:
            done = result.requests["status"] == COMPLETED
            assert result.steps["prefill_tokens"].sum() == result.requests["input_len"][done].sum()
            assert result.steps["decodes"].sum() == (result.requests["output_len"][done] - 1).sum()


def forget(self: Accountant, request: Request) -> None:
    Swap._is_out(self, request)
    self.swapped.clear()


def leak(self: Accountant, request: Request) -> None:
    del self.leaving[request]
    self.swapped.appendleft(request)


def keep(self: Accountant, request: Request) -> None:
    Swap._is_back(self, request)
    self.num_free_cpu_blocks -= 1


@pytest.mark.plain_source
def test_requests_are_swapped_under_the_accountants_eyes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simserve.simulation.replicas.Swap", Accountant)
    monkeypatch.setattr(Accountant, "away", 0)
    simulate(SQUEEZED)
    assert Accountant.away > 1000


@pytest.mark.plain_source
@pytest.mark.parametrize(
    ("method", "fault", "words"),
    [("_is_out", forget, "in none"), ("_is_out", leak, "a block is lost"), ("_is_back", keep, "CPU memory is lost")],
)
def test_the_accountant_sees_what_is_lost(
    method: str, fault: Callable[[Accountant, Request], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simserve.simulation.replicas.Swap", Accountant)
    monkeypatch.setattr(Accountant, method, fault)
    with pytest.raises(AssertionError, match=words):
        simulate(SQUEEZED)


@given(scenarios(engine=SWAP, cluster={"gpu": SLOW_LINK}), SPACES)
@settings(max_examples=40, deadline=None)
def test_runs_are_steps_and_everyone_is_answered(question: Scenario, space: float) -> None:
    """With prefix caching, chats, closed loops, priorities and replicas."""
    runs, steps = both_ways(question.with_overrides([f"engine.swap_space={space}"]))
    assert_same(runs, steps)
    if question.run.max_time is None:
        assert np.all(np.isin(runs.requests["status"], (COMPLETED, REJECTED)))


# Against the rules written down once more, one request at a time


@dataclass(eq=False)
class Told:
    """A request of the restatement: what is known and computed of it, the blocks it holds, and when its tokens came."""

    arrival: int
    prompt: int
    output: int
    known: int = 0
    computed: int = 0
    blocks: int = 0
    times: list[int] = field(default_factory=list)
    preemptions: int = 0


STEP = 10 * MILLISECOND
BLOCK = 16


class Restated:
    """First come, first served, no cache, the whole prompt reserved: decisions step by step, copies as (end, request).

    One link each way works off its copies one after the other.
    """

    def __init__(self, told: list[Told], seats: int, free: int, budget: int, cpu_free: int, block_ticks: float) -> None:
        self.seats, self.free, self.budget, self.cpu_free, self.block_ticks = seats, free, budget, cpu_free, block_ticks
        self.coming = sorted(told, key=lambda one: one.arrival)
        self.waiting: list[Told] = []
        self.running: list[Told] = []
        self.swapped: list[Told] = []
        self.out: list[tuple[int, Told]] = []
        self.back: list[tuple[int, Told]] = []
        self.num_swaps = 0

    def run(self) -> None:
        now = 0
        while True:
            for end, one in [copy for copy in self.out if copy[0] <= now]:
                self.out.remove((end, one))
                self.free, one.blocks = self.free + one.blocks, 0
                self.swapped.insert(0, one)
            for end, one in [copy for copy in self.back if copy[0] <= now]:
                self.back.remove((end, one))
                self.cpu_free += one.blocks
                self.running.append(one)
            while self.coming and self.coming[0].arrival <= now:
                self.waiting.append(self.coming.pop(0))
            plan = self.decide(now)
            for one, tokens in plan:
                one.computed += tokens
                if one.computed == one.known:
                    one.known += 1
                    one.times.append(now + STEP)
                    if len(one.times) == one.output:
                        self.running.remove(one)
                        self.free += one.blocks
            later = [end for end, _ in self.out + self.back] + [one.arrival for one in self.coming]
            if not plan and not later:
                return
            now = now + STEP if plan else min(later)

    def decide(self, now: int) -> list[tuple[Told, int]]:
        plan: list[tuple[Told, int]] = []
        lacking: dict[Told, int] = {}
        budget, before = self.budget, sum(one.preemptions for one in self.running)
        everyone = list(self.running)
        for one in everyone:
            if one not in self.running or not budget:
                continue
            tokens = min(one.known - one.computed, budget)
            need = -(-(one.computed + tokens) // BLOCK) - one.blocks
            if need and (lacking or need > self.free):
                lacking[one] = need
                while one in self.running and sum(lacking.values()) > self.free + sum(c[1].blocks for c in self.out):
                    lacking.pop(self.running[-1], None)
                    self.preempt(self.running[-1], now)
                if one not in self.running or len(lacking) > 1 or need > self.free:
                    continue
                lacking.clear()
            budget -= tokens
            self.hold(one, need)
            plan.append((one, tokens))
        if lacking or sum(one.preemptions for one in everyone) > before:
            return plan
        while self.waiting and budget and not self.out and not self.swapped and self.has_seat():
            one = self.waiting[0]
            if -(-one.known // BLOCK) > self.free:
                break
            tokens = min(one.known, budget)
            budget -= tokens
            self.running.append(self.waiting.pop(0))
            self.hold(one, -(-tokens // BLOCK))
            plan.append((one, tokens))
        while self.swapped and self.has_seat() and -(-self.swapped[0].known // BLOCK) <= self.free:
            one = self.swapped.pop(0)
            self.hold(one, -(-one.computed // BLOCK))
            self.copy(one, now, self.back)
        return plan

    def has_seat(self) -> bool:
        return len(self.running) + len(self.back) < self.seats

    def hold(self, one: Told, blocks: int) -> None:
        self.free -= blocks
        one.blocks += blocks
        assert self.free >= 0

    def preempt(self, one: Told, now: int) -> None:
        self.running.remove(one)
        one.preemptions += 1
        blocks = -(-one.computed // BLOCK)
        if 0 < blocks <= self.cpu_free:
            self.num_swaps += 1
            self.cpu_free -= blocks
            self.copy(one, now, self.out)
        else:
            self.free, one.blocks, one.computed = self.free + one.blocks, 0, 0
            self.waiting.insert(0, one)

    def copy(self, one: Told, now: int, link: list[tuple[int, Told]]) -> None:
        begin = max([now, *(end for end, _ in link)])
        link.append((begin + ceil(-(-one.computed // BLOCK) * self.block_ticks), one))


@given(
    st.lists(
        st.builds(Told, st.integers(0, 40).map(lambda ms: ms * MILLISECOND), st.integers(1, 100), st.integers(1, 120)),
        min_size=2,
        max_size=12,
    ),
    st.sampled_from([2, 4, 12]),
    st.sampled_from([16, 20, 30]),
    st.sampled_from([32, 100, 500]),
    st.sampled_from([0, 4, 12, 1000]),
    st.sampled_from([1e8, 3e8, 1e10]),
)
@settings(max_examples=150, deadline=None)
def test_decides_what_the_plain_restatement_decides(
    told: list[Told], seats: int, blocks: int, budget: int, cpu_blocks: int, bandwidth: float
) -> None:
    told.sort(key=lambda one: one.arrival)
    for one in told:
        one.known = one.prompt
    restated = Restated(told, seats, blocks, budget, cpu_blocks, BLOCK_BYTES / bandwidth * TICKS_PER_SECOND)
    restated.run()
    result = serve(
        [(one.arrival / MILLISECOND, one.prompt, one.output) for one in told],
        "engine.preemption=swap", f"engine.swap_space={cpu_blocks * BLOCK_BYTES}", "engine.max_model_len=240",
        f"engine.num_gpu_blocks={blocks + 1}", f"engine.max_num_seqs={seats}", "engine.enable_prefix_caching=false",
        f"engine.max_num_batched_tokens={budget}",
        f"cluster.gpu={{base: h100-sxm-80gb, interconnect: {{host_bandwidth: {bandwidth}}}}}",
    )  # fmt: skip
    assert ticks(result.requests["first_token"]).tolist() == [one.times[0] for one in told]
    assert ticks(result.requests["finish"]).tolist() == [one.times[-1] for one in told]
    assert result.requests["num_preemptions"].tolist() == [one.preemptions for one in told]
    assert result.meta["num_swaps"] == restated.num_swaps
    longer = {(row, int(step)) for row, one in enumerate(told) for step in np.diff(one.times) if step > STEP}
    assert bool(longer) == bool(result.gaps["request"].size)


# What it looks like


def test_a_victim_goes_on_where_it_was() -> None:
    """Two prompts of 4 blocks in a pool of 9, steps of 10 ms, and a link that takes 21 ms for a block. The step after
    the prompts needs a fifth block for each: the second request leaves. It comes back when the first has finished, at
    400 ms, and has its further 39 tokens when it has been copied. Nothing is computed twice.
    """
    limits = ("engine.max_model_len=112", "engine.num_gpu_blocks=10", "engine.enable_prefix_caching=false")
    link = "cluster.gpu={base: h100-sxm-80gb, interconnect: {host_bandwidth: 1e8}}"
    result = serve([(0, 64, 40), (0, 64, 40)], "engine.preemption=swap", *limits, link)
    copy = 1000 * 4 * BLOCK_BYTES / 1e8
    assert milliseconds(result, "finish") == pytest.approx([400, 400 + copy + 390])
    assert result.requests["num_preemptions"].tolist() == [0, 1]
    assert result.steps["prefill_tokens"].sum() == 128
    assert (result.steps["decodes"] * result.steps["steps"]).sum() == 78
    starts = [round(1000 * start) for start in result.steps["start"]]
    held = dict(zip(starts, 9 - result.steps["free_blocks"], strict=True))
    assert held[10] == held[90] == 5 + 4, "blocks are held until the copy has ended"
    assert held[100] == 5


def test_copies_share_the_memory_of_the_gpu_with_kernels() -> None:
    """Kernel by kernel, copies slow the kernels beside them, by no more than the time that their bytes take; steps
    know nothing of it. Without copies both are the same."""
    link = "cluster.gpu={base: l4-24gb, interconnect: {host_bandwidth: 25e9}}"
    question = SQUEEZED.with_overrides([link, "workload.num_requests=16", "workload.input=400"])
    simulation = Simulation(question.with_overrides(["run.resolution=kernels"]))
    kernels, steps = simulation.run(), simulate(question)
    assert kernels.meta["num_swaps"] == steps.meta["num_swaps"] != 0
    replica = simulation.replicas[0]
    assert isinstance(replica.pace, Kernels)
    assert isinstance(replica.scheduler, Swap)
    slowed = kernels.steps["gpu_time"].sum() - steps.steps["gpu_time"].sum()
    copied = kernels.meta["swapped_bytes"]
    assert copied == replica.scheduler.counters()["swapped_blocks"] * BLOCK_BYTES
    assert 0 < slowed <= copied / replica.pace.gpu.hbm.rate
    alone = question.with_overrides(["engine.swap_space=0"])
    assert_same_requests(simulate(alone.with_overrides(["run.resolution=kernels"])), simulate(alone))


def test_results_say_that_vllm_does_not_swap() -> None:
    found = summarize(simulate(SQUEEZED))
    assert found["extensions"] == ["preemption by swapping"]
    assert found["num_swaps"] > 0
    assert "not in vLLM: preemption by swapping" in found["trust"]
    assert f"Swapped out of them:                     {found['num_swaps']}" in benchmark_table(found)


@pytest.mark.parametrize("space", ["0", "64 GiB"])
def test_clients_may_leave_wherever_their_request_is(space: str) -> None:
    """Timeouts while others are swapped: everyone ends in one way, and every block is free at the end."""
    question = SQUEEZED.with_overrides(
        [f"engine.swap_space={space}", "workload.client={timeout: 3 s}", "workload.num_requests=100"]
    )
    simulation = Simulation(question)
    result = simulation.run()
    assert np.isin(result.requests["status"], (COMPLETED, TIMED_OUT)).all()
    assert 0 < (result.requests["status"] == TIMED_OUT).sum() < 100
    scheduler = simulation.replicas[0].scheduler
    assert isinstance(scheduler, Swap)
    scheduler.schedule()
    assert not scheduler.has_requests
    assert scheduler.ledger.pool.num_free == scheduler.ledger.pool.num_blocks


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["engine.preemption=swap", "engine.async_scheduling=true"], r"engine\.async_scheduling: swapping"),
        (
            ["engine.preemption=swap", "engine.scheduler=prefill_first"],
            r"engine\.preemption: swap is not modelled with",
        ),
        (["engine.preemption=swap", "engine.kv_allocation=contiguous"], r"engine\.preemption: swap would be ignored"),
        (["engine.preemption=swap", "cluster.pipeline_parallel=2"], r"engine\.preemption: .*pipeline"),
        (["engine.swap_space=4 GiB"], r"engine\.swap_space: would be ignored"),
    ],
)
def test_what_swapping_does_not_go_with_is_refused(overrides: list[str], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        scenario(*overrides)
