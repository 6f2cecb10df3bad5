"""One step by itself, kernel by kernel: what `simserve step --timeline` shows."""

from collections.abc import Generator, Sequence
from itertools import chain, starmap
from typing import TYPE_CHECKING, NamedTuple

from simpy import Event

from simserve.cost.build import build_step_cost
from simserve.cost.kernels import Batch
from simserve.cost.modelled import ModelledStepCost
from simserve.cost.operators import Kernel
from simserve.engine.clock import Clock
from simserve.engine.gpu.device import Gpu
from simserve.engine.gpu.spelled import SpelledStep, spell_out
from simserve.engine.gpu.trace import Trace
from simserve.spec.ticks import to_seconds, to_ticks
from simserve.spec.timeline import Level, Span, StepTimeline

if TYPE_CHECKING:
    from simserve.spec.scenario import Scenario


class Copy(NamedTuple):
    """Bytes that somebody moves between HBM and a link of `bandwidth` B/s, from `at` seconds after the step's start."""

    at: float
    num_bytes: float
    bandwidth: float


def step_timeline(
    scenario: "Scenario",
    chunks: Sequence[tuple[int, int]],
    num_decodes: int,
    context: int,
    num_sampled: int,
    *,
    copies: Sequence[Copy] = (),
) -> StepTimeline:
    """A step on an idle GPU, with copies beside it; the other arguments as `StepCost.step`.

    Raises:
        ScenarioError: as `build_step_cost`.
    """
    cost = build_step_cost(scenario)
    spelled = spell_out(cost, Batch(chunks, num_decodes, context, num_sampled))
    clock, trace = Clock(), Trace()
    gpu = Gpu.of(clock, scenario.cluster.gpu, trace)
    host: list[Span] = []
    clock.process(_engine_core(gpu, spelled, host))
    for copy in copies:
        clock.process(_copy(gpu, copy))
    clock.run()
    launch_of = chain.from_iterable([i] * len(launch.kernels) for i, launch in enumerate(spelled.launches))
    mode = cost.graph_of(chunks, num_decodes)[0].value if isinstance(cost, ModelledStepCost) else "none"
    return StepTimeline(
        name=f"{scenario.model.name} on {scenario.cluster.gpu.name}: {_describe(chunks, num_decodes, context)}",
        time=to_seconds(trace.kernels[-1][2]),
        graph=mode,
        hbm_bandwidth=scenario.cluster.gpu.hbm_bandwidth,
        host=tuple(host),
        launches=tuple(starmap(_span, trace.launches)),
        kernels=tuple(map(_kernel_span, trace.kernels, launch_of)),
        copies=tuple(map(_kernel_span, trace.copies)),
        levels=tuple(Level(to_seconds(at), *rates) for at, *rates in trace.levels),
    )


def _engine_core(gpu: Gpu, spelled: SpelledStep, host: list[Span]) -> Generator[Event, None, None]:
    env = gpu.env
    yield env.timeout(spelled.before)
    host.append(_span("prepare", 0, int(env.now)))
    done = yield from gpu.launch(spelled.launches)
    launched = int(env.now)
    yield done
    executed = int(env.now)
    host.append(_span("wait for the GPU", launched, executed))
    if spelled.after:
        yield env.timeout(spelled.after)
        host.append(_span("update", executed, int(env.now)))


def _copy(gpu: Gpu, copy: Copy) -> Generator[Event, None, None]:
    yield gpu.env.timeout(to_ticks(copy.at))
    yield gpu.copy(copy.num_bytes, copy.bandwidth)


def _span(name: str, start: int, end: int) -> Span:
    return Span(name, to_seconds(start), to_seconds(end))


def _kernel_span(ran: tuple[Kernel, int, int], launch: int = -1) -> Span:
    kernel, start, end = ran
    return Span(kernel.name, to_seconds(start), to_seconds(end), kernel.bytes, kernel.flops, kernel.bound, launch)


def _describe(chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> str:
    parts = [f"{new:,} prompt tokens" + (f" after {history:,}" if history else "") for new, history in chunks]
    if num_decodes:
        decodes = "1 decode" if num_decodes == 1 else f"{num_decodes:,} decodes"
        parts.append(f"{decodes} of {context / num_decodes:,.0f} tokens of context")
    return ", ".join(parts)
