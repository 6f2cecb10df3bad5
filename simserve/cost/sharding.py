"""How the GPUs of a replica share a model: formats they compute in, what they send each other, where experts lie."""

from collections.abc import Mapping
from typing import NamedTuple

from simserve.cost.collectives import CollectiveTime, all_gather, all_reduce, all_to_all, half_of
from simserve.cost.expert_kernels import ExpertKernel
from simserve.cost.fusions import NO_FUSIONS, Fusions
from simserve.cost.linear_backend import LinearBackend
from simserve.cost.tables import Tables
from simserve.spec.experts import ExpertParallelSpec
from simserve.spec.hardware import AllReduceSpec, GpuSpec
from simserve.spec.run import AllReduceKernel

_COMPUTE: Mapping[str, tuple[str, ...]] = {
    "fp32": ("fp32", "bf16"),
    "bf16": ("bf16",),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8",),
    "int8": ("int8", "fp8"),
    "int4": (),
    "mxfp4": (),
    "nvfp4": ("nvfp4", "fp4"),
}
"""Formats that a GEMM on weights of a format may compute in; without them the weights are widened first."""


class Sharding(NamedTuple):
    """GPUs of the tensor-parallel group, their collectives (None on one GPU), the formats they compute in."""

    ranks: int
    compute_dtypes: frozenset[str]
    all_reduce: CollectiveTime | None = None
    all_gather: CollectiveTime | None = None
    reduce_scatter: CollectiveTime | None = None
    fused_experts: bool = False
    """The experts of a layer are one operator, as they were measured."""
    spread: int = 1
    """GPUs that experts are spread over, whole; 1 where each of them is cut over all GPUs."""
    imbalance: float = 1.0
    peers: int = 1
    """Replicas whose tokens the experts of one serve; `all_gather` and `reduce_scatter` are then among them."""
    skew: float = 0.0
    """How unevenly tokens choose experts, see `Routing`."""
    expert_kernel: ExpertKernel | None = None
    """What multiplies the experts, where neither a table nor the efficiencies say what it takes."""
    exchange: CollectiveTime | None = None
    """Where GPUs send tokens to their experts; None where all of them have all tokens."""
    fusions: Fusions = NO_FUSIONS
    backend: LinearBackend | None = None
    """Library of the GEMMs on quantised weights; None is the kernels that were measured."""

    def compute_dtype(self, weight_dtype: str, activation_dtype: str) -> str:
        """Format in which a GEMM on such weights runs on this GPU."""
        wide = tuple(_COMPUTE[activation_dtype])
        for dtype in _COMPUTE[weight_dtype] + wide:
            if dtype in self.compute_dtypes:
                return dtype
        raise ValueError(f"no peak FLOP/s for {weight_dtype} weights with {activation_dtype} activations")


def sharding(
    gpu: GpuSpec,
    ranks: int,
    tables: Tables | None = None,
    expert_dtype: str = "bf16",
    experts: ExpertParallelSpec | None = None,
    *,
    kernel: AllReduceKernel = "flashinfer",
) -> Sharding:
    """How `ranks` GPUs share the model; `kernel` sums their results. Where no all-reduce was measured among so many, a
    link's bandwidth holds; a profile that states links of its own, or all-reduces over them, is taken at its word.
    """
    computes = frozenset(gpu.peak_flops)
    fused = tables is not None and tables.has_experts(expert_dtype)
    peers = 1 if experts is None else experts.data_parallel
    gpus = ranks * peers
    if gpus == 1:
        return Sharding(1, computes, fused_experts=fused)
    links = gpu.interconnect
    spec = links.all_reduce.get(gpus) or AllReduceSpec(
        times={1: gpu.efficiency.kernel_floor}, bus_bandwidth=links.bandwidth
    )
    measured = tables if tables is not None and tables.same_links else None
    times = measured.all_reduce(gpus, kernel) if measured else None
    if times is not None:
        spec = AllReduceSpec(times=times, bus_bandwidth=spec.bus_bandwidth)
    gather, scatter = (
        half_of(found, gpus) if measured and (found := measured.collective(name, gpus)) else all_gather(spec, gpus)
        for name in ("all_gather", "reduce_scatter")
    )
    if peers > 1 and experts is not None:
        return Sharding(1, computes, None, gather, scatter, fused, peers, experts.imbalance, peers)
    reduce: CollectiveTime = all_reduce(spec, ranks)
    if experts is None:
        return Sharding(ranks, computes, reduce, gather, scatter, fused)
    exchange = None
    if experts.communication == "all_to_all":
        found = measured.collective("alltoall", ranks) if measured else None
        exchange = half_of(found, ranks) if found else all_to_all(spec.floor, links.bandwidth, ranks)
    return Sharding(ranks, computes, reduce, gather, scatter, fused, ranks, experts.imbalance, exchange=exchange)
