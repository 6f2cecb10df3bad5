"""What a run knows of itself beside its records: where it comes from, what its engines counted, what its steps were."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from simserve import __version__
from simserve.cluster.pool import Pool
from simserve.cluster.records import Columns
from simserve.cost import MemoryLedger, cost_level
from simserve.engine.counters import total
from simserve.engine.replica import Replica
from simserve.simulation.replicas import kv_block_bytes
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds
from simserve.workload.columns import Workload

Counters = dict[str, object]


def origin(scenario: Scenario, workload: Workload) -> Counters:
    """Version, question and traffic."""
    return {
        "version": __version__,
        "seed": scenario.seed,
        "profile_hash": scenario.cluster.gpu.profile_hash,
        "cost_level": cost_level(scenario),
        "extensions": scenario.engine.extensions,
        "skipped_rows": workload.skipped_rows,
        **({} if workload.trace_report is None else {"trace": workload.trace_report.as_dict()}),
        "input_tokens_counted_by": workload.input_counted_by,
        "shortened_sessions": workload.shortened_sessions,
    }


def of_engines(replicas: Sequence[Replica], ledger: MemoryLedger) -> Counters:
    """Sums over the engines, bytes that were swapped (both ways, on one GPU of each replica), and their KV cache."""
    counts: Counters = dict(total(replica.counters() for replica in replicas))
    counts.pop("waited_for_peers", None)  # a part of the step times
    if "swapped_blocks" in counts:
        counts["swapped_bytes"] = cast("int", counts.pop("swapped_blocks")) * kv_block_bytes(ledger)
    config = replicas[0].scheduler.config
    return counts | {"num_gpu_blocks": config.num_gpu_blocks, "kv_block_size": config.block_size}


def of_steps(pools: Sequence[Pool], steps: Columns) -> Counters:
    """What the steps of all pools were made of, in seconds; while a GPU waits for its peers its host has time."""
    breakdown: dict[str, float] = {}
    extrapolated = 0
    for pool in pools:
        own = steps if len(pools) == 1 else _steps_of(pool, steps)
        extrapolated += pool.cost.extrapolated_steps(own)
        for group, time in pool.cost.breakdown(own).items():
            breakdown[group] = breakdown.get(group, 0.0) + time
    counted = total(replica.counters() for pool in pools for replica in pool.replicas.values())
    waited = to_seconds(cast("int", counted.get("waited_for_peers", 0)))
    if waited:
        breakdown |= {"peers": waited, "host": max(0.0, breakdown.get("host", 0.0) - waited)}
    return {"step_time_breakdown": breakdown, "extrapolated_steps": extrapolated}


def _steps_of(pool: Pool, steps: Columns) -> Columns:
    rows = np.isin(steps["replica"], list(pool.replicas))
    return {name: column[rows] for name, column in steps.items()}


def of_pools(pools: Sequence[Pool]) -> Counters:
    """Each of several pools."""
    return {"pools": {pool.name: pool.facts() for pool in pools}} if len(pools) > 1 else {}
