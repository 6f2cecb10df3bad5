"""Serves a workload for real under a virtual clock: every step executes, and the clock moves on by what it took.

The simulator, given the very times that were measured, must decide the same batches in the same order: `replay` checks
that step by step, and turns the run into a `Result` that all reports read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.engine.engine import Engine
from calibration.engine.runner import ModelRunner
from calibration.engine.texts import Texts
from calibration.traffic import Traffic, refuse_unanswered_turns
from simserve.cost import build_step_cost, front_end, memory_ledger
from simserve.cost.step import DecodeCost, StepTime
from simserve.cost.unevenness import Unevenness
from simserve.engine.request import Request
from simserve.simulation import Simulation, scheduler_config
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, Result
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_ticks
from simserve.workload.columns import Workload
from simserve.workload.workload import build_workload

Chunks = tuple[tuple[int, int], ...]


class LiveStep(NamedTuple):
    """A step that the engine executed: chunks as (new tokens, history), decodes, tokens of KV they read, ticks."""

    chunks: Chunks
    num_decodes: int
    context: int
    ticks: int


class LiveRun(NamedTuple):
    """All steps of a workload, and the tick at which each request finished, by row; rejected ones have none."""

    steps: list[LiveStep]
    finish: dict[int, int]


def serve(runner: ModelRunner, scenario: Scenario, progress: Callable[[float], None] = lambda _: None) -> LiveRun:
    """Serve the workload of a scenario on the real engine.

    Raises:
        ScenarioError: the scenario is more than one engine that waits for each of its steps, or a turn of a chat does
            not wait for the answer before it.
    """
    workload = build_workload(scenario)
    refuse(scenario)
    refuse_unanswered_turns(workload)
    traffic = Traffic(scenario, workload, front_end(scenario))
    texts = _Texts(workload, runner.model.vocab_size, scenario.seed)
    engine = Engine(runner, scheduler_config(scenario, memory_ledger(scenario).num_gpu_blocks))
    run = LiveRun([], {})
    now = 0
    while True:
        for request in traffic.until(now):
            engine.add(request, texts.of(request))
        if not engine.scheduler.has_requests:
            following = traffic.next()
            if following is None:
                return run
            now = following
            continue
        now, finished = _step(engine, run, now)
        for request in finished:
            texts.said(request, engine.text(request))
            engine.forget(request)
            run.finish[int(request.id)] = now
            traffic.answered(int(request.id), now)
        progress(traffic.num_answered / len(workload))


class _Texts:
    """Prompts of a live run; what a chat has said is kept until its next turn."""

    def __init__(self, workload: Workload, vocab_size: int, seed: int) -> None:
        self._parent = workload.parent
        self._awaited = set(workload.parent[workload.parent >= 0].tolist())
        self._prompts = Texts(workload, vocab_size, seed)
        self._said: dict[int, list[int]] = {}

    def of(self, request: Request) -> list[int]:
        """The prompt of a request that arrives."""
        row = int(request.id)
        return self._prompts.prompt(row, self._said.pop(int(self._parent[row]), ()))

    def said(self, request: Request, text: list[int]) -> None:
        """A request has finished with this text."""
        if int(request.id) in self._awaited:
            self._said[int(request.id)] = text


def _step(engine: Engine, run: LiveRun, now: int) -> tuple[int, Sequence[Request]]:
    """Execute a step that begins at `now`; returns its end, and the requests that finished."""
    output = engine.step()
    plan, timer = output.plan, engine.runner.timer
    chunks = tuple((chunk.num_tokens, chunk.history) for chunk in plan.chunks)
    num_decodes, context = plan.num_decodes, plan.context
    began = timer()
    finished = engine.complete(plan)
    ticks = to_ticks(output.times.total + timer() - began)
    if not plan.is_empty:
        run.steps.append(LiveStep(chunks, num_decodes, context, ticks))
        now += ticks
    return now, finished


def refuse(scenario: Scenario) -> None:
    """Refuse what one engine that waits for each of its steps does not do.

    Raises:
        ScenarioError: the scenario asks for it.
    """
    engine, workload = scenario.engine, scenario.workload
    unlike = {
        "cluster: one engine on one device is run, not replicas or parallel GPUs": scenario.cluster.num_gpus > 1,
        "engine.scheduler: the live engine runs vllm_v1": engine.scheduler != "vllm_v1",
        "engine.async_scheduling: the live engine waits for each step, set it to false": engine.async_scheduling,
        "engine.kv_allocation: the live engine has paged KV": engine.kv_allocation != "paged",
        "engine.speculative: the live engine decodes token by token": engine.speculative is not None,
        "engine.max_num_queued_*: the live engine takes all requests in": (
            engine.max_num_queued_reqs is not None or engine.max_num_queued_tokens is not None
        ),
        "cost.host.front_end_busy: all requests are read at once": scenario.cost.host.front_end_busy > 0,
        "workload.client: clients wait for their answers": (
            workload.client is not None or any(each.client is not None for each in workload.classes)
        ),
        "run.max_time: every request is served to its end": scenario.run.max_time is not None,
    }
    for what, found in unlike.items():
        if found:
            raise ScenarioError(f"live validation: {what}: not modelled yet")


class MeasuredStepCost:
    """A `StepCost` that gives each step the time that the same step took for real.

    Raises AssertionError where the simulator decides another step than the engine executed.
    """

    update = 0
    uneven: Unevenness | None = None

    def __init__(self, steps: Sequence[LiveStep]) -> None:
        self._steps = steps
        self.num_taken = 0

    def for_one_run(self) -> "MeasuredStepCost":
        """The same steps from the first."""
        return MeasuredStepCost(self._steps)

    def ticks(
        self,
        chunks: Sequence[tuple[int, int]],
        num_decodes: int,
        context: int,
        num_sampled: int,  # noqa: ARG002
    ) -> tuple[int, int, int, int]:
        """Time of the next step."""
        assert self.num_taken < len(self._steps), "the simulator takes more steps than the engine"
        step = self._steps[self.num_taken]
        decided = (tuple(chunks), num_decodes, context)
        assert decided == step[:3], f"step {self.num_taken}: the engine ran {step[:3]}, the simulator decides {decided}"
        self.num_taken += 1
        return 0, step.ticks, step.ticks, 0

    def step(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int) -> StepTime:
        """The same by name."""
        return StepTime(*self.ticks(chunks, num_decodes, context, num_sampled))

    def decode(self, num_decodes: int) -> DecodeCost:
        """What asks for the next step when it is asked itself."""
        return _NextDecode.of(self, num_decodes)

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """All in one group."""
        return {"model": float(steps["gpu_time"].sum())}

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:  # noqa: ARG002
        """None: all were measured."""
        return 0


class _NextDecode(DecodeCost):
    """Takes its number only when it is asked for its time; a `DecodeCost` by type, as the compiled engine wants it."""

    _cost: MeasuredStepCost
    _num_decodes: int

    @classmethod
    def of(cls, cost: MeasuredStepCost, num_decodes: int) -> "_NextDecode":
        """The next step, which is to have so many decodes and nothing else."""
        found = cls(0, graph=False, padded=0, pieces=())
        found._cost, found._num_decodes = cost, num_decodes
        return found

    def ticks(self, context: int) -> tuple[int, int, int, int]:
        return self._cost.ticks((), self._num_decodes, context, self._num_decodes)


def replay(scenario: Scenario, run: LiveRun) -> Result:
    """The simulator's records of the workload, with the measured times: those of the real run.

    Raises:
        AssertionError: engine and simulator differ in a batch, in their order, or in when a request finishes.
    """
    cost = MeasuredStepCost(run.steps)
    simulation = Simulation(scenario.with_overrides(["run.resolution=steps"]), lambda _: cost)
    result = simulation.run()
    assert cost.num_taken == len(run.steps), "the engine takes more steps than the simulator"
    rows = np.flatnonzero(result.requests["status"] == COMPLETED)
    assert sorted(run.finish) == rows.tolist(), "other requests finish"
    finish = np.array([run.finish[row] for row in rows.tolist()], dtype=np.int64) + front_end(scenario).delivery
    seen = result.requests["finish"][rows]
    assert np.array_equal(np.rint(seen * 1e9), np.rint(finish / 1e4)), "requests finish otherwise"
    return replace(result, scenario=scenario, meta={**result.meta, "cost_level": "measured"})


def step_bias(scenario: Scenario, run: LiveRun) -> float:
    """Simulated over measured time of the very steps that the engine executed, minus 1."""
    cost = build_step_cost(scenario)
    simulated = sum(
        cost.ticks(step.chunks, step.num_decodes, step.context, step.num_decodes + len(step.chunks))[2]
        for step in run.steps
    )
    return simulated / sum(step.ticks for step in run.steps) - 1
