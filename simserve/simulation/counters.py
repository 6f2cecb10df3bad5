"""What a run knows of itself beside its records: where it comes from, and what its engines and its door counted."""

from collections.abc import Sequence

from simserve import __version__
from simserve.cluster.admission import Refusal
from simserve.cluster.cluster import Cluster
from simserve.cost import MemoryLedger, cost_level
from simserve.engine.lockstep import LockstepReplica
from simserve.engine.policies.swap import SwapScheduler
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
    """Sums over the engines."""
    schedulers = [replica.scheduler for replica in replicas]
    return {
        "total_steps": sum(scheduler.num_steps for scheduler in schedulers),
        "skipped_steps": sum(replica.num_skipped_steps for replica in replicas),
        "prefix_cache_queries": sum(scheduler.num_cache_queries for scheduler in schedulers),
        "prefix_cache_hits": sum(scheduler.num_cache_hits for scheduler in schedulers),
        "num_preemptions": sum(scheduler.num_preemptions for scheduler in schedulers),
        "num_thrashings": sum(scheduler.num_thrashings for scheduler in schedulers),
        "scheduler_calls": sum(scheduler.num_calls for scheduler in schedulers),
        "num_gpu_blocks": schedulers[0].config.num_gpu_blocks,
        "kv_block_size": schedulers[0].block_size,
        **_swaps(replicas, ledger),
        **_dummy_steps(replicas),
    }


def _swaps(replicas: Sequence[Replica], ledger: MemoryLedger) -> Counters:
    """How often requests were swapped out, and what was copied, both ways, on one GPU of each replica."""
    swapping = [one.scheduler for one in replicas if isinstance(one.scheduler, SwapScheduler)]
    if not swapping:
        return {}
    copied = sum(scheduler.num_copied_blocks for scheduler in swapping)
    return {
        "num_swaps": sum(scheduler.num_swaps for scheduler in swapping),
        "swapped_bytes": copied * kv_block_bytes(ledger),
    }


def _dummy_steps(replicas: Sequence[Replica]) -> Counters:
    """Steps that a rank took for nobody, because others that share its experts had somebody."""
    ranks = [one for one in replicas if isinstance(one, LockstepReplica)]
    return {"dummy_steps": sum(rank.num_dummy_steps for rank in ranks)} if ranks else {}


def of_the_door(cluster: Cluster) -> Counters:
    """Attempts that were refused, by reason, where more than the length of a prompt is a reason."""
    if cluster.rate_limit is None and not cluster.queue_limits:
        return {}
    return {"refused": {why.name.lower(): cluster.refusals.count(why) for why in Refusal}}
