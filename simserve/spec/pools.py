"""Disaggregation: replicas that only compute prompts, replicas that only decode, and the network between them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from simserve.spec.engine import EngineSpec, fill_engine, whole
from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec
from simserve.spec.names import RouterName
from simserve.spec.quantities import BytesPerSecond, Count, PositiveCount, Seconds
from simserve.spec.strict import Strict

PREFILL, DECODE = "prefill", "decode"
POOLS = (PREFILL, DECODE)


class Role(StrEnum):
    """What the replicas of a pool do of an answer: all of it, its first token, or all tokens after that."""

    WHOLE = "whole"
    PREFILL = PREFILL
    DECODE = DECODE


class PoolSpec(Strict):
    """Identical replicas with one half of the work."""

    NOT_MODELLED: ClassVar = {"gpu": "another GPU in one of the pools"}

    replicas: PositiveCount = 1
    tensor_parallel: PositiveCount | None = None
    """The cluster's where it is left out."""
    pipeline_parallel: PositiveCount | None = None
    """The cluster's where it is left out."""
    router: RouterName | None = None
    """The cluster's where it is left out."""
    engine: EngineSpec
    """What differs from the scenario's `engine`."""


class PoolsSpec(Strict):
    """Prefill and decode replicas. The first token of an answer comes from the one, all others from the other."""

    prefill: PoolSpec
    decode: PoolSpec
    stay_below: Count = 0
    """A prompt with fewer tokens than this that its decode replica has not cached is computed there, by itself."""


class KvLinkSpec(Strict):
    """What KV blocks cross from a prefill to a decode replica. Transfers share it max-min fairly."""

    bandwidth: BytesPerSecond | None = None
    """Of the network card of each replica, all its GPUs together; nobody has to wait for it where it is left out."""
    backbone: BytesPerSecond | None = None
    """Of what all transfers share; nobody has to wait for it where it is left out."""
    latency: Seconds = 0.0
    """From the decode replica's asking for the blocks to their first byte; the place, too, for what a proxy between the
    pools and the second front end take."""


def hand_down_engine(data: Any) -> Any:
    """A scenario as written, with its `engine` laid under what each pool states of its own."""
    match data:
        case {"cluster": {"pools": {**pools}, **cluster}, **rest}:
            common = rest.get("engine")
            given = {name: _laid_under(pool, common) if name in POOLS else pool for name, pool in pools.items()}
            return {**rest, "cluster": {**cluster, "pools": given}}
    return data


def _laid_under(pool: Any, common: Any) -> Any:
    pool = {} if pool is None else pool
    if not isinstance(pool, Mapping):
        return pool
    own = pool.get("engine")
    return {**pool, "engine": _merged(common if common is not None else {}, own if own is not None else {})}


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above if isinstance(below, Mapping) else below  # what is wrong with `engine` is to be seen
    return {**below, **{key: _merged(below[key], value) if _both(below.get(key), value) else value
                        for key, value in above.items()}}  # fmt: skip


def _both(one: Any, other: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping)


def fill_pools(pools: Any, model: ModelSpec, gpu: GpuSpec, stages: Any) -> Any:
    """The pools as handed down, with what vLLM would fill into the engine of each; `stages` as the cluster has it."""
    if not isinstance(pools, Mapping):
        return pools
    filled = dict(pools)
    for name in POOLS:
        match filled.get(name):
            case {"engine": Mapping() as engine, **rest}:
                own = whole(rest.get("pipeline_parallel") or stages)
                filled[name] = {**rest, "engine": fill_engine(engine, model, gpu, own)}
    return filled
