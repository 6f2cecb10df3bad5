"""What a run knows of itself beside its records: where it comes from, and what its engines and its door counted."""

from collections.abc import Sequence

from simserve import __version__
from simserve.cluster.admission import Refusal
from simserve.cluster.cluster import Cluster
from simserve.cost import MemoryLedger, cost_level
from simserve.engine.counters import total
from simserve.engine.replica import Replica
from simserve.simulation.replicas import kv_block_bytes
from simserve.spec.policies import extensions
from simserve.spec.scenario import Scenario
from simserve.workload.columns import Workload

Counters = dict[str, object]


def origin(scenario: Scenario, workload: Workload) -> Counters:
    """Version, question and traffic."""
    return {
        "version": __version__,
        "seed": scenario.seed,
        "profile_hash": scenario.cluster.gpu.profile_hash,
        "cost_level": cost_level(scenario),
        "extensions": extensions(scenario.engine),
        "skipped_rows": workload.skipped_rows,
        "input_tokens_counted_by": workload.input_counted_by,
        "shortened_sessions": workload.shortened_sessions,
    }


def of_engines(replicas: Sequence[Replica], ledger: MemoryLedger) -> Counters:
    """Sums over the engines, bytes that were swapped (both ways, on one GPU of each replica), and their KV cache."""
    counts: Counters = dict(total(replica.counters() for replica in replicas))
    swapped = counts.pop("swapped_blocks", None)
    if isinstance(swapped, int):
        counts["swapped_bytes"] = swapped * kv_block_bytes(ledger)
    config = replicas[0].scheduler.config
    return counts | {"num_gpu_blocks": config.num_gpu_blocks, "kv_block_size": config.block_size}


def of_the_door(cluster: Cluster) -> Counters:
    """Attempts that were refused, by reason, where more than the length of a prompt is a reason."""
    if cluster.rate_limit is None and not cluster.queue_limits:
        return {}
    return {"refused": {why.name.lower(): cluster.refusals.count(why) for why in Refusal}}
