"""Serves a workload for real under a virtual clock: every step executes, and the clock moves on by what it took.

The simulator, given the very times that were measured, must decide the same batches in the same order: `replay` checks
that step by step, and turns the run into a `Result` that all reports read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from calibration.engine.engine import Engine
from calibration.engine.runner import ModelRunner
from calibration.engine.texts import Texts
from simserve.cluster.clients import front_end_delay
from simserve.cost import build_step_cost, front_end, memory_ledger
from simserve.cost.step import DecodeCost, StepTime
from simserve.engine.request import Request
from simserve.simulation import Simulation, scheduler_config
from simserve.spec.errors import ScenarioError
from simserve.spec.result import Result
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
    """All steps of a workload, and the tick at which each request finished, by row."""

    steps: list[LiveStep]
    finish: dict[int, int]


def serve(runner: ModelRunner, scenario: Scenario, progress: Callable[[float], None] = lambda _: None) -> LiveRun:
    """Serve the workload of a scenario on the real engine.

    Raises:
        ScenarioError: the scenario is more than one engine with requests that come by the clock.
    """
    workload = build_workload(scenario)
    _refuse(scenario, workload)
    texts = Texts(workload, runner.model.vocab_size, scenario.seed)
    engine = Engine(runner, scheduler_config(scenario, memory_ledger(scenario).num_gpu_blocks))
    reaches = workload.arrival + front_end_delay(front_end(scenario), workload)
    order = np.argsort(reaches, kind="stable").tolist()
    run = LiveRun([], {})
    now = arrived = 0
    while True:
        while arrived < len(order) and reaches[order[arrived]] <= now:
            _add(engine, workload, texts, order[arrived])
            arrived += 1
        if not engine.scheduler.has_requests:
            if arrived == len(order):
                return run
            now = int(reaches[order[arrived]])
            continue
        now = _step(engine, run, now)
        progress(len(run.finish) / len(order))


def _add(engine: Engine, workload: Workload, texts: Texts, row: int) -> None:
    columns = (workload.input_len, workload.output_len, workload.max_tokens, workload.priority)
    input_len, output_len, max_tokens, priority = (int(column[row]) for column in columns)
    engine.add(Request(row, 0, input_len, output_len, max_tokens, priority=priority), texts.prompt(row))


def _step(engine: Engine, run: LiveRun, now: int) -> int:
    """Execute a step that begins at `now`; returns its end."""
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
    for request in finished:
        run.finish[int(request.id)] = now
        engine.forget(request)
    return now


def _refuse(scenario: Scenario, workload: Workload) -> None:
    cluster, engine = scenario.cluster, scenario.engine
    unlike = {
        "cluster.replicas: one engine is run": cluster.replicas > 1,
        "cluster.tensor_parallel: one device is run": cluster.tensor_parallel > 1,
        "engine.async_scheduling: the live engine waits for each step, set it to false": engine.async_scheduling,
        "workload: closed loops and chats": workload.users > 0 or bool((workload.arrival < 0).any()),
        "workload: shared prefixes": bool((workload.prefix_group >= 0).any()),
        "workload: prompts beyond max_model_len": bool((workload.input_len >= engine.max_model_len).any()),
    }
    for what, found in unlike.items():
        if found:
            raise ScenarioError(f"live validation: {what}: not modelled yet")


class MeasuredStepCost:
    """A `StepCost` that gives each step the time that the same step took for real.

    Raises AssertionError where the simulator decides another step than the engine executed.
    """

    update = 0

    def __init__(self, steps: Sequence[LiveStep]) -> None:
        self._steps = steps
        self.num_taken = 0

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
        return cast(DecodeCost, _NextDecode(self, num_decodes))

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """All in one group."""
        return {"model": float(steps["gpu_time"].sum())}

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:  # noqa: ARG002
        """None: all were measured."""
        return 0


class _NextDecode:
    def __init__(self, cost: MeasuredStepCost, num_decodes: int) -> None:
        self._cost = cost
        self._num_decodes = num_decodes

    def ticks(self, context: int) -> tuple[int, int, int, int]:
        return self._cost.ticks((), self._num_decodes, context, self._num_decodes)


def replay(scenario: Scenario, run: LiveRun) -> Result:
    """The simulator's records of the workload, with the measured times: those of the real run.

    Raises:
        AssertionError: engine and simulator differ in a batch, in their order, or in when a request finishes.
    """
    simulation = Simulation(scenario.with_overrides(["run.resolution=steps"]))
    cost = MeasuredStepCost(run.steps)
    simulation.cost = cost
    for replica in simulation.replicas:
        replica.cost = cost
    result = simulation.run()
    assert cost.num_taken == len(run.steps), "the engine takes more steps than the simulator"
    finish = np.array([run.finish[row] for row in range(len(run.finish))]) + simulation.front_end.delivery
    assert np.array_equal(np.rint(result.requests["finish"] * 1e9), np.rint(finish / 1e4)), "requests finish otherwise"
    return replace(result, meta={**result.meta, "cost_level": "measured"})


def step_bias(scenario: Scenario, run: LiveRun) -> float:
    """Simulated over measured time of the very steps that the engine executed, minus 1."""
    cost = build_step_cost(scenario)
    simulated = sum(
        cost.ticks(step.chunks, step.num_decodes, step.context, step.num_decodes + len(step.chunks))[2]
        for step in run.steps
    )
    return simulated / sum(step.ticks for step in run.steps) - 1
