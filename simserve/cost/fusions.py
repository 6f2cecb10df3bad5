"""Which operators of a forward pass the engine's compiler makes one kernel."""

from typing import NamedTuple

from simserve.cost.collectives import CollectiveTime, one_shot
from simserve.spec.hardware import GpuSpec
from simserve.spec.passes import PassSpec


class Fusions(NamedTuple):
    """Which operators the engine's compiler made one kernel."""

    all_reduce: CollectiveTime | None = None
    """Time of the all-reduce in the kernel that does the norm behind it too; None where no kernel does both."""
    largest: float = 0.0
    """Bytes of the largest message for which it does."""
    attention_quant: bool = False
    """Attention quantises its output."""


NO_FUSIONS = Fusions()


def fusions_of(passes: PassSpec, gpu: GpuSpec, ranks: int) -> Fusions:
    """What the compiler's passes fuse among `ranks` GPUs; with one there is no all-reduce to fuse.

    Raises:
        ValueError: the kernel was not measured among so many on this GPU.
    """
    fusions = NO_FUSIONS._replace(attention_quant=passes.fuse_attn_quant)
    if ranks == 1 or not passes.fuse_allreduce_rms:
        return fusions
    spec = gpu.interconnect.one_shot.get(ranks)
    if spec is None:
        known = ", ".join(map(str, gpu.interconnect.one_shot)) or "no number"
        raise ValueError(f"engine.pass_config.fuse_allreduce_rms: measured among {known} of these GPUs, not {ranks}")
    return fusions._replace(all_reduce=one_shot(spec, ranks), largest=passes.largest_fused(gpu.architecture, ranks))
