"""What fits into the GPU: the memory ledger of one replica, computed as vLLM 0.32 does at start-up.

The budget is a share of the whole card. Weights, the activation peak of a profiling run, the framework and CUDA graphs
are taken from it, and what is left becomes KV blocks (vllm/v1/worker/gpu_worker.py, determine_available_memory).
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from simserve.cost.activations import activation_bytes
from simserve.cost.drafter import drafter_block_bytes, drafter_of, joint_parameters, shared_parameters
from simserve.cost.expert_padding import padded_share
from simserve.cost.held import WHOLE
from simserve.cost.kv_pool import KvGroups
from simserve.cost.launch import GraphMode, GraphPolicy, graph_policy
from simserve.cost.stages import model_of_stage, unheld_parameters
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.errors import ScenarioError
from simserve.spec.model import ModelSpec

if TYPE_CHECKING:
    from simserve.spec.engine import EngineSpec
    from simserve.spec.scenario import Scenario

GIB = 2**30

_PIECE_BYTES = 256 * 1024
_FULL_LAYER_BYTES = 100 * 1024
"""Memory of captured CUDA graphs: of each piece between two attentions, and of each layer of a full graph. Fitted to
start-up logs, each within 20 %: 67 sizes in pieces of Qwen2-7B 0.50 GiB and of a 32-layer model 0.67 GiB (vLLM 0.10),
51 sizes in pieces and 35 full of Qwen2.5-0.5B 0.40 GiB and of Qwen3-8B 0.54 GiB, 35 and 19 of Qwen2.5-7B 0.37 GiB."""


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Bytes of one GPU: `weights`, `activations`, `framework`, `cuda_graphs`, `kv` and `outside` add up to `total`.

    `outside` is what `gpu_memory_utilization` leaves alone. `kv_tokens` and `max_concurrency` (requests of
    `max_model_len` tokens at once) are what vLLM logs. `num_gpu_blocks` is the scheduler's pool, its null block
    included. Where not all layers hold all tokens of a request, vLLM logs `allocated_blocks`, of which the scheduler
    gets the share that the full layers of a request of `max_model_len` tokens hold: it counts full attention only.
    `source` says where the number of blocks comes from.
    """

    total: int
    weights: int
    activations: int
    framework: int
    cuda_graphs: int
    kv: int
    outside: int
    block_bytes: int
    allocated_blocks: int
    num_gpu_blocks: int
    kv_tokens: int
    max_concurrency: float
    source: str

    @property
    def budget(self) -> int:
        """Bytes that the engine uses."""
        return self.total - self.outside

    def as_dict(self) -> dict[str, float | int | str]:
        """All lines, for the records of a run."""
        return {"budget": self.budget, **asdict(self)}


def memory_ledger(scenario: "Scenario") -> MemoryLedger:
    """Ledger of one GPU of a replica; of the stage with the fewest blocks, which all stages of a pipeline then have.
    `engine.num_gpu_blocks` overrides the blocks that the ledger finds.

    Raises:
        ScenarioError: weights, another line or the KV of one request of `max_model_len` tokens do not fit; the message
            names the line, its bytes and the GPU's.
    """
    stages = range(scenario.cluster.pipeline_parallel)
    return min((_ledger_of_stage(scenario, stage) for stage in stages), key=lambda ledger: ledger.num_gpu_blocks)


def _ledger_of_stage(scenario: "Scenario", stage: int) -> MemoryLedger:
    engine, total = scenario.engine, round(scenario.cluster.gpu.memory)
    model = model_of_stage(scenario.model, scenario.cluster.pipeline_parallel, stage)
    lines = _lines(scenario, model, stage)
    groups = KvGroups.of(model, scenario.cluster.tensor_parallel, engine.block_size)
    block_bytes = groups.block_bytes
    if _has_drafter(scenario, stage):
        ranks = scenario.cluster.tensor_parallel
        block_bytes += drafter_block_bytes(engine.speculative, model, ranks, engine.block_size)
    if engine.num_gpu_blocks is None:
        budget = int(total * engine.gpu_memory_utilization)
        _refuse_overfull(scenario, lines, budget)
        kv = budget - sum(lines.values())
        allocated = kv // block_bytes
    else:
        allocated = engine.num_gpu_blocks
        kv = allocated * block_bytes
        _refuse_more_than_the_card(scenario, lines["weights"], kv)
        lines = _cut(lines, total - kv)
    request_blocks = groups.request_blocks(engine.max_model_len, engine.block_size, _in_flight(engine))
    _refuse_short_pool(scenario, request_blocks, allocated, block_bytes)
    concurrency = allocated / request_blocks
    whole_blocks = WHOLE.blocks(engine.max_model_len, engine.block_size, 0)
    return MemoryLedger(
        total=total,
        **lines,
        kv=kv,
        outside=total - kv - sum(lines.values()),
        block_bytes=block_bytes,
        allocated_blocks=allocated,
        num_gpu_blocks=allocated if groups.is_plain else int(concurrency * whole_blocks),
        kv_tokens=allocated * engine.block_size if groups.is_plain else int(concurrency * engine.max_model_len),
        max_concurrency=concurrency,
        source="memory ledger" if engine.num_gpu_blocks is None else "engine.num_gpu_blocks",
    )


def _lines(scenario: "Scenario", model: ModelSpec, stage: int) -> dict[str, int]:
    """What is taken from the budget before KV, in the order in which it is taken; `model` has the layers of `stage`."""
    engine, cluster, ranks = scenario.engine, scenario.cluster, scenario.cluster.tensor_parallel
    gpu = cluster.gpu
    tokens = engine.max_num_batched_tokens
    rows = min(engine.max_num_seqs, tokens)
    drafts = _has_drafter(scenario, stage)
    return {
        "weights": round(
            _stage_weight_bytes(scenario, model, stage)
            + (_drafter_weight_bytes(scenario) if drafts else 0)
            - _expert_bytes_of_peers(scenario, model)
        ),
        "activations": activation_bytes(model, ranks, tokens=tokens, rows=rows, max_model_len=engine.max_model_len),
        "framework": round(gpu.framework_bytes + (gpu.communicator_bytes if cluster.gpus_per_replica > 1 else 0)),
        "cuda_graphs": graph_bytes(model.num_layers, _graphs(engine))
        + (_drafter_graph_bytes(scenario) if drafts else 0),
    }


def _has_drafter(scenario: "Scenario", stage: int) -> bool:
    """Whether a stage proposes drafts: the last one does, which samples."""
    return scenario.engine.speculative is not None and stage == scenario.cluster.pipeline_parallel - 1


def _stage_weight_bytes(scenario: "Scenario", model: ModelSpec, stage: int) -> float:
    """Bytes of the weights on one GPU of a stage, which has the layers of `model` and perhaps embedding and head."""
    whole, ranks = scenario.model, scenario.cluster.tensor_parallel
    elsewhere = unheld_parameters(whole, scenario.cluster.pipeline_parallel, stage)
    if whole.given_weight_bytes is not None:
        return weight_bytes(whole, ranks) * (model.num_parameters - elsewhere) / whole.num_parameters
    held = weight_bytes(model, ranks) + _zeros_of_experts(scenario, model)
    return held - elsewhere * bytes_per_element(model.activation_dtype) / ranks


def _zeros_of_experts(scenario: "Scenario", model: ModelSpec) -> float:
    """Bytes of the zeros that kernels for MXFP4 experts keep between their weights on one GPU."""
    cluster, ranks = scenario.cluster, scenario.cluster.tensor_parallel
    parts = 1 if cluster.expert_parallel else ranks
    zeros = 0.0
    for mixture, count in model.mixtures.items():
        weights = mixture.experts_gate_up
        if weights is not None and weights.dtype == "mxfp4":
            hidden = mixture.latent_size or model.hidden_size
            share = padded_share(hidden, mixture.width, cluster.gpu.architecture or "", parts)
            experts = [each for each in mixture.matrices(model.hidden_size) if each.gemm.startswith("experts_")]
            zeros += count * (share - 1) * sum(each.bytes(model.activation_dtype, ranks) for each in experts)
    return zeros


def _expert_bytes_of_peers(scenario: "Scenario", model: ModelSpec) -> float:
    """Bytes of the experts that lie on other replicas, which share them."""
    experts = scenario.cluster.expert_parallel
    peers = 1 if experts is None else experts.data_parallel
    held = sum(
        layer.count * matrix.bytes(model.activation_dtype)
        for layer in model.layers
        for matrix in layer.matrices(model.hidden_size)
        if matrix.gemm.startswith("experts_")
    )
    return held * (1 - 1 / peers)


def _drafter_weight_bytes(scenario: "Scenario") -> float:
    """Bytes of what a drafter holds beside its model on one GPU."""
    spec, ranks = scenario.engine.speculative, scenario.cluster.tensor_parallel
    drafter = None if spec is None else drafter_of(spec, scenario.model)
    if spec is None or drafter is None:
        return 0.0
    act = bytes_per_element(drafter.activation_dtype)
    return weight_bytes(drafter, ranks) + act * (
        joint_parameters(spec, drafter) - shared_parameters(spec, drafter) / ranks
    )


def _drafter_graph_bytes(scenario: "Scenario") -> int:
    spec = scenario.engine.speculative
    drafter = None if spec is None or spec.is_eager else drafter_of(spec, scenario.model)
    return 0 if drafter is None else graph_bytes(drafter.num_layers, _graphs(scenario.engine))


def weight_bytes(model: ModelSpec, ranks: int) -> float:
    """Bytes that loading the model takes on one of `ranks` GPUs: its part of each matrix, what every GPU holds whole
    (router, projections to latents, one of too few KV heads), and the table of rotary embeddings. Weights
    stated by the user are shared as they are.
    """
    if model.given_weight_bytes is not None:
        return model.given_weight_bytes / ranks
    act, hidden = bytes_per_element(model.activation_dtype), model.hidden_size
    layers = sum(
        layer.count
        * (
            sum(matrix.bytes(model.activation_dtype, ranks) for matrix in layer.matrices(hidden))
            + layer.vectors(hidden) * act
        )
        for layer in model.layers
    )
    table = 0.0
    if not model.learned_positions:
        table = model.max_position_embeddings * act * max(each.rotary_dim for each in model.attentions)
    return layers + model.outer_bytes / ranks + table


def graph_bytes(num_layers: int, graphs: GraphPolicy) -> int:
    """Bytes of all captured CUDA graphs of a model: an estimate from start-up logs."""
    full = [size for size in graphs.sizes if graphs.choose(size, decode_only=True)[0] is GraphMode.FULL]
    mixed = len(graphs.sizes) if graphs.mixed is GraphMode.PIECEWISE else 0
    return mixed * (num_layers + 1) * _PIECE_BYTES + len(full) * num_layers * _FULL_LAYER_BYTES


def _graphs(engine: "EngineSpec") -> GraphPolicy:
    mode = "none" if engine.enforce_eager else engine.cuda_graph.mode
    return graph_policy(mode, engine.cuda_graph.capture_sizes, engine.max_num_seqs)


def _in_flight(engine: "EngineSpec") -> int:
    """Tokens scheduled and not yet settled: asynchronous scheduling has two batches under way."""
    return engine.max_num_batched_tokens * (2 if engine.async_scheduling else 1)


def _cut(lines: dict[str, int], room: int) -> dict[str, int]:
    """Lines cut to what they can be at most: a number of blocks from a real server outweighs our estimates."""
    cut = {}
    for name, size in lines.items():
        cut[name] = min(size, room)
        room -= cut[name]
    return cut


def _refuse_overfull(scenario: "Scenario", lines: dict[str, int], budget: int) -> None:
    used = 0
    for name, size in lines.items():
        used += size
        if used >= budget:
            raise ScenarioError(
                f"memory: {name} do not fit: {_where(scenario)} has {_gib(scenario.cluster.gpu.memory)}, of which "
                f"gpu_memory_utilization {scenario.engine.gpu_memory_utilization:g} is {_gib(budget)}, but "
                + ", ".join(f"{each} take {_gib(taken)}" for each, taken in lines.items())
                + "; raise cluster.tensor_parallel or engine.gpu_memory_utilization, or take a larger GPU or fewer bits"
            )


def _refuse_more_than_the_card(scenario: "Scenario", weights: int, kv: int) -> None:
    if weights + kv > scenario.cluster.gpu.memory:
        raise ScenarioError(
            f"engine.num_gpu_blocks: {scenario.engine.num_gpu_blocks} blocks are {_gib(kv)} of KV, which beside "
            f"{_gib(weights)} of weights is more than the {_gib(scenario.cluster.gpu.memory)} of {_where(scenario)}; "
            "give the blocks that vLLM logs, not the tokens"
        )


def _refuse_short_pool(scenario: "Scenario", needed: int, allocated: int, block_bytes: int) -> None:
    """vLLM's rule: one request of max_model_len tokens fits, beside the null block."""
    if needed <= allocated - 1:
        return
    engine, usable = scenario.engine, max(0, allocated - 1)
    most = usable * engine.max_model_len // needed // engine.block_size * engine.block_size
    raise ScenarioError(
        f"engine.max_model_len: one request of {engine.max_model_len} tokens needs {_gib(needed * block_bytes)} of KV, "
        f"{_where(scenario)} has {_gib(usable * block_bytes)} left for it; set engine.max_model_len to at most about "
        f"{most}, or raise cluster.tensor_parallel or engine.gpu_memory_utilization"
    )


def _where(scenario: "Scenario") -> str:
    ranks = scenario.cluster.tensor_parallel
    return f"one {scenario.cluster.gpu.name}" if ranks == 1 else f"each of {ranks} {scenario.cluster.gpu.name}"


def _gib(size: float) -> str:
    """Bytes as a person reads them."""
    return f"{round(size)} bytes ({size / GIB:.2f} GiB)"
