"""From a scenario to its cost: the step cost of one replica, and what its front end adds around the engine."""

from typing import TYPE_CHECKING, NamedTuple

from simserve.cost.calibrated import CalibratedStepCost, is_calibrated_for
from simserve.cost.device import Device
from simserve.cost.drafter import drafter_of, drafter_shape
from simserve.cost.expert_kernels import chosen_kernel
from simserve.cost.forward import Forward, LaunchTicks
from simserve.cost.fusions import fusions_of
from simserve.cost.kinds.registry import KINDS
from simserve.cost.launch import graph_policy
from simserve.cost.linear_backend import BACKENDS
from simserve.cost.modelled import HostTicks, ModelledStepCost
from simserve.cost.pipeline import PipelineCost
from simserve.cost.shape import GREEDY, LogitWork, forward_shape
from simserve.cost.sharding import sharding
from simserve.cost.speculation import DrafterCost, SpeculativeCost
from simserve.cost.stages import Hop, shape_of_stage
from simserve.cost.step import ConstantStepCost, StepCost
from simserve.cost.synced import SyncedStepCost
from simserve.cost.tables import Tables, tables_of
from simserve.cost.verification import VerificationGraphs
from simserve.spec.errors import ScenarioError
from simserve.spec.experts import ExpertParallelSpec
from simserve.spec.hardware import GpuSpec, HostSpec, LaunchSpec
from simserve.spec.model import ModelSpec
from simserve.spec.passes import PassSpec
from simserve.spec.run import AllReduceKernel
from simserve.spec.speculative import SpeculativeSpec
from simserve.spec.ticks import to_ticks

if TYPE_CHECKING:
    from simserve.spec.scenario import Scenario


class FrontEnd(NamedTuple):
    """Ticks that the API server adds: before the engine sees a request, and before the client sees a token; and how
    long it works on a request, with nothing done for others.
    """

    per_request: int
    per_input_token: int
    delivery: int
    busy: int = 0


class KernelChoice(NamedTuple):
    """Kernels among which the engine has a choice, by its version or its settings; see `CostSpec` and `EngineSpec`."""

    all_reduce: AllReduceKernel = "flashinfer"
    tuned_fp8_decode: bool = True
    moe_backend: str = "auto"
    linear_backend: str = "auto"
    passes: PassSpec = PassSpec()


NEWEST = KernelChoice()


def _kernels(scenario: "Scenario") -> KernelChoice:
    cost, engine = scenario.cost, scenario.engine
    return KernelChoice(
        cost.all_reduce, cost.fp8_decode == "tuned", engine.moe_backend, engine.linear_backend, engine.pass_config
    )


_MOST_BUILT = 32
_built: dict[tuple[str, ...], StepCost] = {}
"""Costs that this process has built: a sweep or a search asks for the same one with every load."""


def build_step_cost(scenario: "Scenario") -> StepCost:
    """Step cost of one replica, for one run. What it has worked out is kept for the next run that asks the same of it:
    a deployment is costed once a process.

    Raises:
        ScenarioError: a number format has no path on this GPU, the cost level is not modelled yet, or the constant step
            takes no time.
    """
    cluster = scenario.cluster.model_copy(update={"replicas": 1, "router": "round_robin", "price_per_gpu_hour": None})
    key = tuple(part.model_dump_json() for part in (scenario.model, cluster, scenario.engine, scenario.cost))
    cost = _built.get(key)
    if cost is None:
        while len(_built) >= _MOST_BUILT:
            del _built[next(iter(_built))]
        cost = _built[key] = _new_step_cost(scenario)
    return cost.for_one_run()


def _new_step_cost(scenario: "Scenario") -> StepCost:
    level = cost_level(scenario)
    if scenario.cluster.pipeline_parallel > 1:
        return _pipeline_cost(scenario, level)
    calibrated = scenario.cluster.gpu.calibrated
    if level == "calibrated" and calibrated is not None:
        graphs = not scenario.engine.enforce_eager and scenario.engine.cuda_graph.mode != "none"
        return CalibratedStepCost(calibrated, graphs=graphs)
    if level == "constant":
        return ConstantStepCost(_constant_ticks(scenario))
    if scenario.engine.speculative is not None:
        return _speculative_cost(scenario, scenario.engine.speculative, modelled_step_cost(scenario))
    return modelled_step_cost(scenario)


def _speculative_cost(
    scenario: "Scenario", spec: SpeculativeSpec, target: ModelledStepCost, *, drafts: bool = True
) -> SpeculativeCost:
    """Step cost of a replica that verifies drafts, from the `target` that it has without; of a stage that proposes none
    itself, without `drafts`.
    """
    engine = scenario.engine
    mode = "none" if engine.enforce_eager else engine.cuda_graph.mode
    graphs = VerificationGraphs(mode, engine.cuda_graph.capture_sizes, engine.max_num_seqs, spec.query_len)
    drafter = drafter_of(spec, scenario.model)
    if drafter is None or not drafts:
        return SpeculativeCost(target, graphs, None, spec.lookup_time_per_token if drafts else 0.0)
    layers = build_forward(
        drafter,
        scenario.cluster.gpu,
        scenario.cluster.tensor_parallel,
        measured=cost_level(scenario) == "kernels",
        eager=engine.enforce_eager,
        experts=scenario.cluster.expert_parallel if drafter.is_moe else None,
        kernels=_kernels(scenario)._replace(moe_backend="auto", linear_backend="auto"),  # those of the target's format
    )
    forward = Forward(drafter_shape(spec, layers.shape, drafter.hidden_size), layers.device, layers.launch)
    return SpeculativeCost(
        target,
        graphs,
        DrafterCost(
            forward,
            spec.num_speculative_tokens,
            None if spec.is_eager else graphs,
            reads_sampled=spec.method == "draft_model",
        ),
    )


def _constant_ticks(scenario: "Scenario") -> int:
    ticks = to_ticks(scenario.cost.constant_step or 0.0)
    if ticks < scenario.cluster.pipeline_parallel:
        raise ScenarioError(f"cost.constant_step: a step takes time, got {scenario.cost.constant_step} s")
    return ticks


def _pipeline_cost(scenario: "Scenario", level: str) -> PipelineCost:
    """Step cost of a replica in stages, the last of which proposes drafts. A constant step is the same part of it on
    each.
    """
    stages = scenario.cluster.pipeline_parallel
    if level == "constant":
        first, rest = divmod(_constant_ticks(scenario), stages)
        return PipelineCost([ConstantStepCost(first + (stage < rest)) for stage in range(stages)])
    whole = modelled_step_cost(scenario)
    hop = Hop.of(scenario.model, scenario.cluster.gpu, scenario.cluster.tensor_parallel)
    idle = HostTicks(0, 0, 0)
    spec = scenario.engine.speculative
    costs: list[StepCost] = []
    for stage in range(stages):
        shape = shape_of_stage(whole.forward.shape, stages, stage, hop)
        forward = Forward(shape, whole.forward.device, whole.forward.launch)
        cost = ModelledStepCost(forward, whole.policy, idle if stage else whole.host)
        is_last = stage == stages - 1
        costs.append(cost if spec is None else _speculative_cost(scenario, spec, cost, drafts=is_last))
    return PipelineCost(costs)


def cost_level(scenario: "Scenario") -> str:
    """Where step times come from: `constant` (stated by the user), `calibrated` (this very model was measured on this
    device), `kernels` (measured on this GPU) or `datasheet`.

    `auto` is calibrated where the profile is, for this model, else kernels where all that the model needs was measured.
    `kernels` itself takes what there is and counts the rest as extrapolated.

    Raises:
        ScenarioError: no calibration of this model, or no measurements of this GPU.
    """
    level = scenario.cost.level
    if scenario.cost.constant_step is not None:
        return "constant"
    if level in {"auto", "calibrated"} and _is_calibrated(scenario):
        return "calibrated"
    if level == "calibrated":
        raise ScenarioError(f"cost.level: {_calibrated_otherwise(scenario)}; run simserve calibrate, or use auto")
    if level == "auto":
        return "datasheet" if _not_measured(scenario) else "kernels"
    if level == "kernels" and scenario.cluster.gpu.tables is None:
        raise ScenarioError(
            f"cost.level: no kernels were measured on {scenario.cluster.gpu.name}, use datasheet or auto"
        )
    return level


def _is_calibrated(scenario: "Scenario") -> bool:
    spec, ranks = scenario.cluster.gpu.calibrated, scenario.cluster.gpus_per_replica
    if scenario.engine.speculative is not None:
        return False  # no calibration holds steps that verify drafts
    return spec is not None and is_calibrated_for(spec, scenario.model, ranks, scenario.engine.block_size)


def _calibrated_otherwise(scenario: "Scenario") -> str:
    """Why no calibration holds for a scenario."""
    gpu = scenario.cluster.gpu
    spec = gpu.calibrated
    if spec is None:
        return f"{gpu.name} has not been calibrated"
    return f"{gpu.name} was calibrated for {spec.model} in {spec.weight_dtype} on one GPU, blocks of {spec.block_size}"


def _not_measured(scenario: "Scenario") -> list[str]:
    """What the model, and the drafter beside it, need and nobody measured on their GPU, in words."""
    model, gpu, ranks = scenario.model, scenario.cluster.gpu, scenario.cluster.tensor_parallel
    tables = _tables(gpu)
    if tables is None:
        return ["any kernel"]
    spec = scenario.engine.speculative
    drafter = None if spec is None else drafter_of(spec, model)
    models = [model] if drafter is None else [model, drafter]
    computes = frozenset(gpu.peak_flops)
    missing = [what for each in models for what in tables.missing(each, ranks, computes)]
    layers = [(attention, each) for each in models for attention in each.attentions]
    found = (KINDS[attention.kind].unmeasured(attention, each, tables) for attention, each in layers)
    return [*missing, *dict.fromkeys(what for what in found if what is not None)]


def _tables(gpu: GpuSpec, kernels: KernelChoice = NEWEST) -> Tables | None:
    try:
        return tables_of(gpu, tuned_fp8_decode=kernels.tuned_fp8_decode)
    except ValueError as error:
        raise ScenarioError(f"cluster.gpu: {error}") from None


def modelled_step_cost(scenario: "Scenario") -> ModelledStepCost:
    """Step cost from the operators of the model, whatever `cost.constant_step` says.

    Raises:
        ScenarioError: as `build_step_cost`.
    """
    engine, gpu = scenario.engine, scenario.cluster.gpu
    mode = "none" if engine.enforce_eager else engine.cuda_graph.mode
    step_cost = SyncedStepCost if engine.host_sync == "layer" else ModelledStepCost
    return step_cost(
        build_forward(
            scenario.model,
            gpu,
            scenario.cluster.tensor_parallel,
            measured=cost_level(scenario) == "kernels",
            sampling=LogitWork(sorts=scenario.cost.sampling == "top_p", penalizes=scenario.cost.penalties),
            eager=engine.enforce_eager,
            experts=scenario.cluster.expert_parallel,
            routing_skew=scenario.cost.routing_skew,
            kernels=_kernels(scenario),
        ),
        graph_policy(mode, engine.cuda_graph.capture_sizes, engine.max_num_seqs),
        host_ticks(scenario.cost.host, asynchronous=engine.async_scheduling),
    )


def build_forward(
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel: int,
    *,
    measured: bool = False,
    sampling: LogitWork = GREEDY,
    eager: bool = False,
    experts: ExpertParallelSpec | None = None,
    routing_skew: float = 0.0,
    kernels: KernelChoice = NEWEST,
) -> Forward:
    """Forward pass of a model on one of `tensor_parallel` GPUs, from the kernels that were `measured` on it or from its
    efficiencies; compiled, or `eager`.

    Raises:
        ScenarioError: a number format has no path on this GPU, or what `moe_backend` takes there is not known.
    """
    launch = launch_ticks(gpu.launch, eager=eager)
    tables = _tables(gpu, kernels) if measured else None
    try:
        shared = sharding(
            gpu, tensor_parallel, tables, model.expert_dtype, experts, kernel=kernels.all_reduce
        )._replace(
            skew=routing_skew,
            expert_kernel=chosen_kernel(model, gpu, kernels.moe_backend),
            fusions=fusions_of(kernels.passes, gpu, tensor_parallel),
            backend=BACKENDS[kernels.linear_backend],
        )
        shape = forward_shape(model, shared, sampling)
        return Forward(shape, Device.of(gpu, tables, cold=True), launch)
    except ValueError as error:
        raise ScenarioError(f"{model.name} on {gpu.name}: {error}") from None


def launch_ticks(spec: LaunchSpec, *, eager: bool) -> LaunchTicks:
    """CPU times of launches: attention is an operator called from Python, and `eager` everything is."""
    python = to_ticks(spec.kernel if spec.eager is None else spec.eager)
    autotuned = python if spec.autotuned is None else to_ticks(spec.autotuned)
    return LaunchTicks(python if eager else to_ticks(spec.kernel), to_ticks(spec.graph), python, autotuned)


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
    an API server has read it, every token reaches the client `delivery` after the engine knew it.
    """
    host = scenario.cost.host
    times = host.front_end_per_request, host.front_end_per_token, host.delivery, host.front_end_busy
    return FrontEnd(*(to_ticks(time) for time in times))
