"""From a scenario to its replicas: which scheduler, on which kind of replica, with what beside it."""

from simserve.cost import MemoryLedger, StepCost
from simserve.cost.pipeline import PipelineCost
from simserve.engine.acceptance import Acceptance
from simserve.engine.clock import Clock
from simserve.engine.config import SchedulerConfig
from simserve.engine.explicit import ExplicitScheduler
from simserve.engine.gpu.device import Gpu
from simserve.engine.gpu.replica import KernelReplica
from simserve.engine.lockstep import Lockstep, LockstepReplica
from simserve.engine.pipeline import PipelineReplica
from simserve.engine.policies import SCHEDULERS
from simserve.engine.policies.batch_timer import BatchTimer
from simserve.engine.policies.static import StaticScheduler
from simserve.engine.policies.swap import SwapScheduler
from simserve.engine.policies.swapper import CpuMemory, Swapper
from simserve.engine.replica import Listener, Replica
from simserve.engine.scheduler import Scheduler
from simserve.engine.speculation import SpeculativeScheduler, speculation_by
from simserve.spec.policies import policy_name
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_ticks
from simserve.workload.streams import random_stream


def build_replica(
    env: Clock,
    scenario: Scenario,
    ledger: MemoryLedger,
    cost: StepCost,
    listener: Listener | None,
    *,
    skips: bool = True,
    alone: bool = False,
) -> Replica:
    """A replica of the scenario's engine, with the blocks of `ledger`, whose steps take what `cost` says.

    `skips`: runs of equal steps may be taken in one sleep. `alone`: all other events concern this replica.
    """
    scheduler = build_scheduler(scenario, ledger)
    if isinstance(cost, PipelineCost):
        return PipelineReplica(env, scheduler, cost, listener=listener)
    if scenario.run.resolution == "kernels":
        return KernelReplica(env, scheduler, cost, Gpu.of(env, scenario.cluster.gpu), listener)
    skips = skips and scenario.run.resolution == "runs"
    return Replica(env, scheduler, cost, skip_equal_steps=skips, listener=listener, alone=alone)


def build_ranks(
    env: Clock, scenario: Scenario, ledger: MemoryLedger, cost: StepCost, listener: Listener | None
) -> list[LockstepReplica]:
    """Replicas that share their experts, and so step together."""
    experts = scenario.cluster.expert_parallel
    assert experts is not None
    group = Lockstep(env, cost, asynchronous=scenario.engine.async_scheduling)
    return [
        LockstepReplica(env, build_scheduler(scenario, ledger), cost, group, listener=listener)
        for _ in range(experts.data_parallel)
    ]


def build_scheduler(scenario: Scenario, ledger: MemoryLedger) -> Scheduler:
    """The scheduler of one replica."""
    config, spec = scheduler_config(scenario, ledger.num_gpu_blocks), scenario.engine.speculative
    if spec is not None:
        seed = int(random_stream(scenario.seed, "acceptance").integers(1 << 62))
        acceptance = Acceptance(spec.acceptance, spec.match_rate, seed)
        return SpeculativeScheduler(config, speculation_by(spec.method, spec.num_speculative_tokens), acceptance)
    if scenario.cluster.pipeline_parallel > 1:
        return ExplicitScheduler(config)
    return SCHEDULERS[policy_name(scenario.engine)](config)


def equip(replica: Replica, scenario: Scenario, ledger: MemoryLedger) -> None:
    """Start what the policy of a replica needs beside it."""
    scheduler, batching = replica.scheduler, scenario.engine.static_batching
    if isinstance(scheduler, StaticScheduler) and batching is not None:
        BatchTimer(replica, scheduler, to_ticks(batching.timeout))
    if isinstance(scheduler, SwapScheduler):
        link = scenario.cluster.gpu.interconnect.host_bandwidth
        memory = CpuMemory(scenario.engine.swap_space or 0.0, kv_block_bytes(ledger), link)
        Swapper(replica, scheduler, memory, replica.gpu if isinstance(replica, KernelReplica) else None)


def kv_block_bytes(ledger: MemoryLedger) -> float:
    """Bytes on one GPU that a block of the scheduler stands for."""
    return ledger.block_bytes * ledger.allocated_blocks / ledger.num_gpu_blocks


def scheduler_config(scenario: Scenario, num_gpu_blocks: int) -> SchedulerConfig:
    """What a scenario tells the scheduler."""
    engine = scenario.engine
    block_size: int = engine.block_size
    if engine.kv_allocation == "contiguous":  # one block for each request, whatever becomes of it
        num_gpu_blocks = 1 + (num_gpu_blocks - 1) * block_size // engine.max_model_len
        block_size = engine.max_model_len
    return SchedulerConfig(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
        num_gpu_blocks=num_gpu_blocks,
        block_size=block_size,
        enable_prefix_caching=engine.enable_prefix_caching,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        scheduling_policy=engine.scheduling_policy,
        watermark=engine.watermark,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
        async_scheduling=engine.async_scheduling,
        max_num_active_seqs=engine.max_num_active_seqs,
    )
