"""From a scenario to its cost: the step cost of one replica, and what its front end adds around the engine."""

from typing import TYPE_CHECKING, NamedTuple

from simserve.cost.collectives import CollectiveTime, all_gather, all_reduce
from simserve.cost.device import Device
from simserve.cost.forward import Forward, LaunchTicks
from simserve.cost.launch import graph_policy
from simserve.cost.modelled import HostTicks, ModelledStepCost
from simserve.cost.shape import Sharding, forward_shape
from simserve.cost.step import ConstantStepCost, StepCost
from simserve.spec.errors import ScenarioError
from simserve.spec.hardware import AllReduceSpec, GpuSpec, HostSpec
from simserve.spec.model import ModelSpec
from simserve.spec.ticks import to_ticks

if TYPE_CHECKING:
    from simserve.spec.scenario import Scenario


class FrontEnd(NamedTuple):
    """Ticks that the API server adds: before the engine sees a request, and before the client sees a token."""

    per_request: int
    per_input_token: int
    delivery: int


def build_step_cost(scenario: "Scenario") -> StepCost:
    """Step cost of one replica.

    Raises:
        ScenarioError: a number format has no path on this GPU, the cost level is not modelled yet, or the constant step
            takes no time.
    """
    if cost_level(scenario) == "constant":
        ticks = to_ticks(scenario.cost.constant_step or 0.0)
        if ticks <= 0:
            raise ScenarioError(f"cost.constant_step: a step takes time, got {scenario.cost.constant_step} s")
        return ConstantStepCost(ticks)
    return modelled_step_cost(scenario)


def cost_level(scenario: "Scenario") -> str:
    """Where step times come from: `constant` (stated by the user) or `datasheet`.

    Raises:
        ScenarioError: a level that is not modelled yet.
    """
    if scenario.cost.constant_step is not None:
        return "constant"
    if scenario.cost.level not in {"auto", "datasheet"}:
        raise ScenarioError(f"cost.level: {scenario.cost.level} is not modelled yet, use datasheet or auto")
    return "datasheet"


def modelled_step_cost(scenario: "Scenario") -> ModelledStepCost:
    """Step cost from the operators of the model, whatever `cost.constant_step` says.

    Raises:
        ScenarioError: as `build_step_cost`.
    """
    engine, gpu = scenario.engine, scenario.cluster.gpu
    mode = "none" if engine.enforce_eager else engine.cuda_graph.mode
    return ModelledStepCost(
        build_forward(scenario.model, gpu, scenario.cluster.tensor_parallel),
        graph_policy(mode, engine.cuda_graph.capture_sizes, engine.max_num_seqs),
        host_ticks(scenario.cost.host, asynchronous=engine.async_scheduling),
    )


def build_forward(model: ModelSpec, gpu: GpuSpec, tensor_parallel: int) -> Forward:
    """Forward pass of a model on one of `tensor_parallel` GPUs.

    Raises:
        ScenarioError: a number format has no path on this GPU.
    """
    launch = LaunchTicks(to_ticks(gpu.launch.kernel), to_ticks(gpu.launch.graph))
    try:
        shape = forward_shape(model, sharding(gpu, tensor_parallel))
        return Forward(shape, Device.of(gpu), launch)
    except ValueError as error:
        raise ScenarioError(f"{model.name} on {gpu.name}: {error}") from None


def sharding(gpu: GpuSpec, ranks: int) -> Sharding:
    """How `ranks` GPUs share the model. Where no all-reduce was measured among so many, the link's bandwidth holds."""
    computes = frozenset(gpu.peak_flops)
    if ranks == 1:
        return Sharding(1, computes)
    links = gpu.interconnect
    spec = links.all_reduce.get(ranks) or AllReduceSpec(
        times={1: gpu.efficiency.kernel_floor}, bus_bandwidth=links.bandwidth
    )
    reduce: CollectiveTime = all_reduce(spec, ranks)
    return Sharding(ranks, computes, reduce, all_gather(spec, ranks))


def host_ticks(host: HostSpec, *, asynchronous: bool) -> HostTicks:
    """Host work of one step; a synchronous engine does all of it before it plans again.

    Raises:
        ScenarioError: the update is longer than the step it is a part of.
    """
    if host.update > host.per_step:
        raise ScenarioError(f"cost.host.update: {host.update} s is a part of per_step, {host.per_step} s, yet longer")
    after = to_ticks(host.update) if asynchronous else 0
    return HostTicks(to_ticks(host.per_step) - after, to_ticks(host.per_sequence), after)


def front_end(scenario: "Scenario") -> FrontEnd:
    """Front end of one replica: a request reaches the engine `per_request` + `per_input_token` x prompt tokens after
    it was sent, every token reaches the client `delivery` after the engine knew it.
    """
    host = scenario.cost.host
    return FrontEnd(to_ticks(host.front_end_per_request), to_ticks(host.front_end_per_token), to_ticks(host.delivery))
