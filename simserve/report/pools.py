"""A fleet in pools in numbers: what was sent between them, how long it took, and what each replica holds."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.report.metrics import Columns
from simserve.report.tokens import BoolArray
from simserve.spec.cluster import ClusterSpec
from simserve.spec.pools import POOLS
from simserve.spec.quantities import format_quantity
from simserve.spec.result import UNFINISHED

Value = int | float | str | None


def usable_blocks(meta: Mapping[str, Any], replica: NDArray[Any]) -> NDArray[Any] | int | None:
    """KV blocks that requests can hold on each of these replicas: all but vLLM's null block; None where not known."""
    if pools := meta.get("pools"):
        sizes, counts = ([pools[name][key] for name in POOLS] for key in ("num_gpu_blocks", "replicas"))
        each: NDArray[Any] = np.repeat(np.array(sizes) - 1, counts)[replica]
        return each
    blocks = meta.get("num_gpu_blocks")
    return blocks - 1 if isinstance(blocks, int) and blocks > 1 else None


def transfer_keys(requests: Columns, done: BoolArray) -> dict[str, Any]:
    """How many bytes of KV were sent a request, beside the metric `kv_transfer`; nothing for a fleet without pools."""
    if "kv_transfer_bytes" not in requests:
        return {}
    sent = int(requests["kv_transfer_bytes"][done].sum())
    return {"mean_kv_transfer_bytes": sent / int(done.sum()) if done.any() else None}


def transfer_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """What a person reads of it."""
    if "mean_kv_transfer_bytes" not in summary:
        return
    yield "KV transfers:", summary["n_kv_transfer"]
    sent = summary["mean_kv_transfer_bytes"]
    yield "KV sent per request (MB):", None if sent is None else sent / 1e6


def waits_for_blocks(requests: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """From when to when each request waited between the pools for blocks of its decode replica; nan and inf where it
    did not, or still does. None for a fleet without pools.
    """
    if "kv_transfer_start" not in requests:
        return None
    started = requests["kv_transfer_start"]
    between = (requests["status"] == UNFINISHED) & (requests["output_len"] == 1) & np.isnan(started)
    return requests["first_token"], np.where(between, np.inf, started)


def fleet_words(cluster: ClusterSpec) -> str | None:
    """The pools in words; None where there are none."""
    if cluster.pools is None or cluster.kv_link is None:
        return None
    words = []
    for name in POOLS:
        pool = cluster.of_pool(name)
        words.append(
            f"{pool.replicas} {name} replica{'s' if pool.replicas > 1 else ''} of {pool.gpus_per_replica} x"
            f" {pool.gpu.name}{f' in {pool.pipeline_parallel} stages' if pool.pipeline_parallel > 1 else ''}"
        )
    rates = {"a replica": cluster.kv_link.bandwidth, "in all": cluster.kv_link.backbone}
    link = [f"{format_quantity(rate, 'B/s')} {whose}" for whose, rate in rates.items() if rate is not None]
    return f"{', '.join(words)}; KV over {', '.join(link) or 'a link that nobody waits for'}"
