"""Settings that contradict speculative decoding, or are not modelled with it yet, and what to do about them."""

from collections.abc import Iterator

from simserve.spec.cluster import ClusterSpec
from simserve.spec.engine import EngineSpec
from simserve.spec.model import ModelSpec
from simserve.spec.run import CostSpec, RunSpec
from simserve.spec.speculative import SpeculativeSpec


def speculative_problems(
    model: ModelSpec, cluster: ClusterSpec, engine: EngineSpec, cost: CostSpec, run: RunSpec
) -> Iterator[tuple[str, str]]:
    """Key path of every setting that contradicts speculation, or is not modelled with it, and what to do about it."""
    spec = engine.speculative
    if spec is None:
        return
    yield from _draft_problems(model, cluster, spec)
    if spec.method == "ngram" and engine.async_scheduling:
        yield "engine.async_scheduling", "n-gram look-ups wait for the tokens of the step before; leave it out"
    for key, value, only in (
        ("engine.scheduler", engine.scheduler, "vllm_v1"),
        ("engine.kv_allocation", engine.kv_allocation, "paged"),
        ("engine.preemption", engine.preemption, "recompute"),
        ("engine.host_sync", engine.host_sync, "none"),
    ):
        if value != only:
            yield key, f"{value} is not modelled with engine.speculative yet; use {only}"
    if run.resolution == "kernels":
        yield "run.resolution", "kernels is not modelled with engine.speculative yet; use runs or steps"
    if cost.level == "calibrated":
        yield "cost.level", "no calibration holds steps that verify drafts; use auto, kernels or datasheet"


def _draft_problems(model: ModelSpec, cluster: ClusterSpec, spec: SpeculativeSpec) -> Iterator[tuple[str, str]]:
    draft = spec.draft_model
    others = model.other_layers | ({} if draft is None else draft.other_layers)
    if spec.has_model and others:
        kinds = " and ".join(others)
        yield "engine.speculative.method", f"KV of a drafter beside {kinds} layers is not modelled yet; use ngram"
    if draft is None:
        return
    key = "engine.speculative.draft_model"
    if draft.vocab_size != model.vocab_size:
        why = f"{draft.name} has {draft.vocab_size} tokens, {model.name} {model.vocab_size}"
        yield key, f"{why}: a draft must come from the same vocabulary"
    if draft.num_heads % cluster.tensor_parallel:
        yield (
            key,
            f"the {draft.num_heads} attention heads of {draft.name} cannot be cut into {cluster.tensor_parallel} parts",
        )
