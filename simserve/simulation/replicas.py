"""From a scenario to its replicas: which scheduler, on which kind of replica, with what beside it."""

from simserve.cost import MemoryLedger, StepCost
from simserve.cost.pipeline import PipelineCost
from simserve.engine.acceptance import Acceptance
from simserve.engine.clock import Clock
from simserve.engine.config import SchedulerConfig
from simserve.engine.drafts import Drafts, speculation_by
from simserve.engine.gpu.device import Gpu
from simserve.engine.ledger import Fetch
from simserve.engine.pace.base import Pace
from simserve.engine.pace.kernels import Kernels
from simserve.engine.pace.ranks import Lockstep, Rank
from simserve.engine.pace.stages import Stages
from simserve.engine.pace.steps import Steps
from simserve.engine.policies import SCHEDULERS
from simserve.engine.policies.batch_timer import BatchTimer
from simserve.engine.policies.static import Static
from simserve.engine.policies.swap import Swap
from simserve.engine.policies.swapper import CpuMemory, Swapper
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.policies.without_kv import WithoutKv
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import Request
from simserve.engine.request_wise import RequestWise
from simserve.engine.scheduler import Scheduler
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
    fetch: Fetch | None = None,
) -> Replica:
    """A replica of the scenario's engine, with the blocks of `ledger`, whose steps take what `cost` says.

    `skips`: runs of equal steps may be taken in one sleep. `alone`: all other events concern this replica. `fetch`
    brings KV from elsewhere, where requests begin there.
    """
    pace = _pace(env, scenario, cost, skips=skips, alone=alone)
    if scenario.engine.preemption == "swap":
        return _swapping(env, scenario, ledger, pace, listener)
    if scenario.engine.static_batching is not None:
        return _batching(env, scenario, ledger, pace, listener)
    return Replica(env, build_scheduler(scenario, ledger, fetch), pace, listener=listener)


def _pace(env: Clock, scenario: Scenario, cost: StepCost, *, skips: bool, alone: bool) -> Pace:
    if isinstance(cost, PipelineCost):
        return Stages(cost)
    if scenario.run.resolution == "kernels":
        return Kernels(cost, Gpu.of(env, scenario.cluster.gpu))
    return Steps(cost, skip_equal_steps=skips and scenario.run.resolution == "runs", alone=alone)


def build_ranks(
    env: Clock, scenario: Scenario, ledger: MemoryLedger, cost: StepCost, listener: Listener | None
) -> list[Replica]:
    """Replicas that share their experts, and so step together."""
    experts = scenario.cluster.expert_parallel
    assert experts is not None
    group = Lockstep(env, cost, asynchronous=scenario.engine.async_scheduling)
    return [
        Replica(env, build_scheduler(scenario, ledger), Rank(cost, group), listener=listener)
        for _ in range(experts.data_parallel)
    ]


def build_scheduler(scenario: Scenario, ledger: MemoryLedger, fetch: Fetch | None = None) -> Scheduler:
    """The scheduler of one replica, of those that need nothing beside them."""
    config, spec = scheduler_config(scenario, ledger.num_gpu_blocks), scenario.engine.speculative
    if scenario.engine.kv_allocation == "none":
        return WithoutKv(config)
    if spec is None and scenario.cluster.pipeline_parallel == 1:
        kind = SCHEDULERS[scenario.engine.scheduler]
        return kind(config) if fetch is None else VllmV1(config, fetch=fetch)
    drafts = None
    if spec is not None:
        seed = int(random_stream(scenario.seed, "acceptance").integers(1 << 62))
        acceptance = Acceptance(spec.acceptance, spec.match_rate, seed)
        drafts = Drafts(speculation_by(spec.method, spec.num_speculative_tokens), acceptance)
    return RequestWise(config, drafts, fetch=fetch)


def _batching(env: Clock, scenario: Scenario, ledger: MemoryLedger, pace: Pace, listener: Listener | None) -> Replica:
    """A replica with static batches, and the timer beside it."""
    batching = scenario.engine.static_batching
    timeout = 0 if batching is None else to_ticks(batching.timeout)

    def begins_to_wait(request: Request) -> None:
        timer.start(request)

    config = scheduler_config(scenario, ledger.num_gpu_blocks)
    scheduler = Static(config, begins_to_wait if timeout else None)
    replica = Replica(env, scheduler, pace, listener=listener)
    timer = BatchTimer(replica, scheduler, timeout)
    return replica


def _swapping(env: Clock, scenario: Scenario, ledger: MemoryLedger, pace: Pace, listener: Listener | None) -> Replica:
    """A replica that swaps, and the link to CPU memory beside it."""
    link = scenario.cluster.gpu.interconnect.host_bandwidth
    memory = CpuMemory(scenario.engine.swap_space or 0.0, kv_block_bytes(ledger), link)

    def copy(request: Request, num_blocks: int, outward: bool) -> None:
        swapper.begin(request, num_blocks, outward)

    scheduler = Swap(scheduler_config(scenario, ledger.num_gpu_blocks), memory.num_blocks, copy)
    replica = Replica(env, scheduler, pace, listener=listener)
    swapper = Swapper(replica, scheduler, memory, pace.gpu if isinstance(pace, Kernels) else None)
    return replica


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
