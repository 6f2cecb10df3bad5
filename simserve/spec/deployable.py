"""Settings that are right one by one and impossible together: what vLLM refuses at start-up is refused here too.

Whether the weights and the KV cache fit is the memory ledger's to say, in `simserve.cost`.
"""

from collections.abc import Iterator

from simserve.spec.cluster import ClusterSpec
from simserve.spec.engine import EngineSpec
from simserve.spec.experts import ExpertParallelSpec
from simserve.spec.layers.attention import GroupedAttention, LatentAttention
from simserve.spec.layers.mlp import DenseMlp
from simserve.spec.model import ModelSpec
from simserve.spec.policy_problems import policy_problems
from simserve.spec.pools import POOLS
from simserve.spec.run import CostSpec, RunSpec
from simserve.spec.speculative_problems import speculative_problems

Problem = tuple[str, str]
"""Key path and what is wrong there, with the remedy."""

_GPUS_OF_A_NODE = 8


def problems(
    model: ModelSpec, cluster: ClusterSpec, engine: EngineSpec, cost: CostSpec, run: RunSpec
) -> Iterator[Problem]:
    """Every contradiction between model, fleet, engine, costs and run."""
    if model.not_simulated:
        yield "model", f"{model.name}: {model.not_simulated}; `simserve models` says what is known of it"
        return
    found = list(_problems_of_engine(model, cluster, engine, cost, run))
    yield from found
    if cluster.api_servers is not None and not cost.host.front_end_busy:
        yield "cluster.api_servers", "would be ignored: without cost.host.front_end_busy no request waits for them"
    yield from _pools(cluster, run)
    if cluster.pools is not None:
        for name in POOLS:
            pool = getattr(cluster.pools, name)
            own = _problems_of_engine(model, cluster.of_pool(name), pool.engine, cost, run)
            for key, what in own:
                if (key, what) not in found:
                    yield f"cluster.pools.{name}.{key.removeprefix('cluster.')}", what


def _problems_of_engine(
    model: ModelSpec, cluster: ClusterSpec, engine: EngineSpec, cost: CostSpec, run: RunSpec
) -> Iterator[Problem]:
    yield from _tensor_parallel(model, cluster.tensor_parallel, spread_experts=cluster.expert_parallel is not None)
    if cluster.expert_parallel is not None:
        yield from _expert_parallel(model, cluster, cluster.expert_parallel)
        if cluster.expert_parallel.data_parallel > 1:
            yield from _lockstep(cluster, engine, run)
    if cluster.pipeline_parallel > 1:
        yield from _pipeline_parallel(model, cluster, engine, run)
    yield from _lengths(model, engine)
    yield from _batch(engine)
    yield from policy_problems(engine)
    yield from speculative_problems(model, cluster, engine, cost, run)
    if engine.enforce_eager and engine.cuda_graph.mode != "none":
        yield "engine.cuda_graph.mode", "would be ignored under enforce_eager: true; state one of them"
    if cost.routing_skew and not model.is_moe:
        yield "cost.routing_skew", f"would be ignored: {model.name} has no experts"
    if engine.linear_backend != "auto":
        yield from _linear_backend(model, cluster, engine.linear_backend)
    if engine.host_sync != "none":
        yield from _host_sync(cluster, engine, cost)
    for key in ("per_step", "per_sequence", "update"):
        if cost.constant_step is not None and getattr(cost.host, key) != getattr(cluster.gpu.host, key):
            yield f"cost.host.{key}", "would be ignored: constant_step stands for the whole step"


def _pools(cluster: ClusterSpec, run: RunSpec) -> Iterator[Problem]:
    pools = cluster.pools
    if pools is None:
        if cluster.kv_link is not None:
            yield "cluster.kv_link", "would be ignored: without cluster.pools no KV is sent"
        return
    if cluster.kv_link is None:
        yield "cluster.kv_link", "is needed: what KV crosses between the pools, for example {bandwidth: 50 GB/s}"
    if run.resolution == "kernels":
        yield "run.resolution", "kernels is not modelled with cluster.pools yet; use runs or steps"
    prefill, decode = pools.prefill.engine, pools.decode.engine
    for key, why in (
        ("block_size", "blocks are sent whole"),
        ("max_model_len", "both pools serve the same requests"),
    ):
        one, other = getattr(prefill, key), getattr(decode, key)
        if one != other:
            yield f"cluster.pools.decode.engine.{key}", f"{other} is not {one}, that of the prefill pool: {why}"
    if prefill.speculative != decode.speculative:
        what = "must be that of the prefill pool, whose blocks hold the drafter's KV, too; state it under engine"
        yield "cluster.pools.decode.engine.speculative", what
    for name, engine in (("prefill", prefill), ("decode", decode)):
        yield from ((f"cluster.pools.{name}.engine.{key}", what) for key, what in _not_in_pools(engine))


def _not_in_pools(engine: EngineSpec) -> Iterator[Problem]:
    for key in ("max_num_queued_reqs", "max_num_queued_tokens"):
        if getattr(engine, key) is not None:
            yield key, "is not modelled with pools yet; use cluster.rate_limit"
    for key, only in (("scheduler", "vllm_v1"), ("kv_allocation", "paged"), ("preemption", "recompute")):
        if (value := getattr(engine, key)) != only:
            yield key, f"{value} is not modelled with pools yet; use {only}"


def _linear_backend(model: ModelSpec, cluster: ClusterSpec, backend: str) -> Iterator[Problem]:
    key = "engine.linear_backend"
    if not cluster.gpu.is_datacenter_blackwell:
        yield key, f"{backend} was not measured on {cluster.gpu.name}, only on data-centre Blackwell; use auto"
    if not {"fp8", "nvfp4"} & set(model.dense_dtypes):
        yield (
            key,
            f"would be ignored: it multiplies linear layers in fp8 and nvfp4, {model.name} has none; use auto",
        )


def _host_sync(cluster: ClusterSpec, engine: EngineSpec, cost: CostSpec) -> Iterator[Problem]:
    key = "engine.host_sync"
    if not engine.enforce_eager and engine.cuda_graph.mode != "none":
        yield key, "a wait for the GPU cannot be captured in a CUDA graph: set engine.enforce_eager: true"
    if engine.async_scheduling:
        yield key, "no step is prepared while the CPU waits inside another: set engine.async_scheduling: false"
    if cluster.pipeline_parallel > 1:
        yield key, "waits inside pipeline stages are not modelled yet; set cluster.pipeline_parallel: 1"
    if engine.speculative is not None:
        yield key, "waits beside speculative decoding are not modelled yet; leave engine.speculative out"
    if cost.constant_step is not None or (cluster.gpu.calibrated is not None and cost.level in {"auto", "calibrated"}):
        yield key, "would be ignored: constant and calibrated step times know no kernels; use cost.level: datasheet"


def _tensor_parallel(model: ModelSpec, ranks: int, *, spread_experts: bool) -> Iterator[Problem]:
    key = "cluster.tensor_parallel"
    if ranks > _GPUS_OF_A_NODE:
        yield key, f"{ranks} GPUs span more than one node of {_GPUS_OF_A_NODE}, which is not modelled yet"
    found: list[str] = []
    for attention in model.attentions:
        if not isinstance(attention, GroupedAttention | LatentAttention):
            continue
        heads, kv = attention.num_heads, getattr(attention, "num_kv_heads", 1)
        if heads % ranks:
            found.append(f"the {heads} attention heads of {model.name} cannot be cut into {ranks} equal parts")
        elif max(kv, ranks) % min(kv, ranks):
            found.append(f"the {kv} KV heads of {model.name} cannot be cut or copied evenly over {ranks} GPUs")
    found += [
        f"the MLP of {model.name}, {width} wide, cannot be cut into {ranks} equal parts"
        for width in _widths(model, spread_experts=spread_experts)
        if width % ranks
    ]
    yield from ((key, what) for what in dict.fromkeys(found))


def _widths(model: ModelSpec, *, spread_experts: bool) -> Iterator[int]:
    """Widths of all MLPs that tensor parallelism cuts."""
    for layer in model.layers:
        if isinstance(layer.mlp, DenseMlp):
            yield layer.mlp.width
        elif layer.mlp is not None:
            yield layer.mlp.num_shared_experts * layer.mlp.shared_width
            yield layer.mlp.residual_width
            if not spread_experts:
                yield layer.mlp.width


def _expert_parallel(model: ModelSpec, cluster: ClusterSpec, experts: ExpertParallelSpec) -> Iterator[Problem]:
    key, ranks = "cluster.expert_parallel", cluster.tensor_parallel * experts.data_parallel
    if cluster.replicas % experts.data_parallel:
        yield f"{key}.data_parallel", f"{cluster.replicas} replicas are not groups of {experts.data_parallel}"
    if experts.data_parallel > 1 and cluster.tensor_parallel > 1:
        yield f"{key}.data_parallel", "is not modelled with tensor_parallel yet"
    if experts.data_parallel > 1 and experts.communication == "all_to_all":
        yield f"{key}.data_parallel", "is not modelled with all_to_all yet"
    if not model.is_moe:
        yield key, f"{model.name} has no experts; leave it out"
    elif ranks == 1:
        yield (
            key,
            "would be ignored: experts are spread over the GPUs of tensor_parallel, which is 1, and of data_parallel",
        )
    elif model.num_experts % ranks:
        yield key, f"the {model.num_experts} experts of {model.name} cannot be spread evenly over {ranks} GPUs"


def _lockstep(cluster: ClusterSpec, engine: EngineSpec, run: RunSpec) -> Iterator[Problem]:
    """Replicas that share experts step together (`simserve.engine.pace.ranks`)."""
    why = "is not modelled with cluster.expert_parallel.data_parallel yet"
    if cluster.pools is not None:
        yield "cluster.pools", f"{why}; leave one of them out"
    if cluster.pipeline_parallel > 1:
        yield "cluster.pipeline_parallel", f"{why}; leave it out"
    if engine.speculative is not None:
        yield "engine.speculative", f"{why}; leave it out"
    if engine.host_sync != "none":
        yield "engine.host_sync", f"{engine.host_sync} {why}; leave it out"
    if engine.kv_allocation == "none":
        yield "engine.kv_allocation", f"none {why}; use paged"
    for key, only in (("scheduler", "vllm_v1"), ("preemption", "recompute")):
        if (value := getattr(engine, key)) != only:
            yield f"engine.{key}", f"{value} {why}; use {only}"
    if run.resolution == "kernels":
        yield "run.resolution", f"kernels {why}; use runs or steps"


def _pipeline_parallel(model: ModelSpec, cluster: ClusterSpec, engine: EngineSpec, run: RunSpec) -> Iterator[Problem]:
    key, stages = "cluster.pipeline_parallel", cluster.pipeline_parallel
    if stages * cluster.tensor_parallel > _GPUS_OF_A_NODE:
        gpus = f"{stages} stages of {cluster.tensor_parallel} GPUs"
        yield key, f"{gpus} span more than one node of {_GPUS_OF_A_NODE}, which is not modelled yet"
    if stages > model.num_layers:
        yield key, f"the {model.num_layers} layers of {model.name} cannot be cut into {stages} stages"
    for kind in model.other_layers:
        yield key, f"the {kind} layers of {model.name} on different stages are not modelled yet; use tensor_parallel"
    if any(layer.attention is None for layer in model.layers):
        yield key, f"the layers without attention of {model.name} on stages are not modelled yet; use tensor_parallel"
    if engine.scheduler != "vllm_v1":
        yield "engine.scheduler", f"{engine.scheduler} is not modelled with pipeline stages yet; use vllm_v1"
    if engine.preemption != "recompute":
        yield "engine.preemption", f"{engine.preemption} is not modelled with pipeline stages yet; use recompute"
    if engine.kv_allocation == "none":
        yield "engine.kv_allocation", "none is not modelled with pipeline stages yet; use paged"
    if engine.async_scheduling:
        yield "engine.async_scheduling", "is not modelled with pipeline stages yet; leave it out"
    if run.resolution == "kernels":
        yield "run.resolution", "kernels is not modelled with pipeline stages yet; use runs or steps"


def _lengths(model: ModelSpec, engine: EngineSpec) -> Iterator[Problem]:
    key = "engine.max_model_len"
    if engine.max_model_len > model.max_position_embeddings:
        yield key, f"{engine.max_model_len} is more than the {model.max_position_embeddings} positions of {model.name}"
    if engine.num_gpu_blocks is None or model.other_layers:
        return
    # Block 0 is the null block (vLLM 0.32, v1/core/block_pool.py).
    tokens = (engine.num_gpu_blocks - 1) * engine.block_size
    if tokens < engine.max_model_len:
        held = f"num_gpu_blocks: {engine.num_gpu_blocks} holds {tokens} tokens (one block is vLLM's null block)"
        yield key, f"{engine.max_model_len} does not fit: {held}; state max_model_len: {tokens} or less, or more blocks"


def _batch(engine: EngineSpec) -> Iterator[Problem]:
    tokens, key = engine.max_num_batched_tokens, "engine.max_num_batched_tokens"
    if not engine.enable_chunked_prefill and tokens < engine.max_model_len:
        why = f"{tokens} is less than max_model_len {engine.max_model_len}, and a whole prompt must fit in one step"
        yield key, f"{why} without chunked prefill: raise it, lower max_model_len, or turn enable_chunked_prefill on"
    if tokens < engine.max_num_seqs:
        yield key, f"{tokens} is less than max_num_seqs {engine.max_num_seqs}: each of them needs a token per step"
    if engine.max_num_active_seqs > engine.max_num_seqs:
        yield (
            "engine.max_num_active_seqs",
            f"{engine.max_num_active_seqs} is more than max_num_seqs {engine.max_num_seqs}",
        )
