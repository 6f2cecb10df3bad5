"""One run: from a scenario to its records."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from simserve import __version__
from simserve.cluster import records
from simserve.cluster.admission import Refusal, open_the_door
from simserve.cluster.attempts import attempt_columns, of_attempts, place_of_attempts
from simserve.cluster.clients import OpenLoop, Responsive, front_end_delay
from simserve.cluster.cluster import Cluster
from simserve.cluster.disaggregation import Disaggregation, KvLink
from simserve.cluster.impatient import Impatient, Patience, patience_of_classes
from simserve.cluster.link import Network
from simserve.cluster.prompts import Prompts
from simserve.cluster.router import ROUTERS, Router
from simserve.cluster.speculated import speculation_columns, speculation_counts
from simserve.cost import MemoryLedger, StepCost, build_step_cost, cost_level, front_end, memory_ledger
from simserve.cost.drafter import models_with_kv
from simserve.cost.kv_pool import sent_bytes
from simserve.cost.pipeline import PipelineCost
from simserve.engine.acceptance import Acceptance
from simserve.engine.config import SchedulerConfig
from simserve.engine.explicit import ExplicitScheduler
from simserve.engine.gpu.device import Gpu
from simserve.engine.gpu.replica import KernelReplica
from simserve.engine.instant import Clock
from simserve.engine.lockstep import Lockstep, LockstepReplica
from simserve.engine.pipeline import PipelineReplica
from simserve.engine.policies import SCHEDULERS
from simserve.engine.policies.batch_timer import BatchTimer
from simserve.engine.policies.static import StaticScheduler
from simserve.engine.policies.swap import SwapScheduler
from simserve.engine.policies.swapper import CpuMemory, Swapper
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import Request
from simserve.engine.scheduler import Scheduler
from simserve.engine.speculation import SpeculativeScheduler, speculation_by
from simserve.spec.experts import ExpertParallelSpec
from simserve.spec.policies import extensions, policy_name
from simserve.spec.pools import POOLS, PoolsSpec
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario
from simserve.spec.speculative import SpeculativeSpec
from simserve.spec.ticks import to_seconds, to_ticks
from simserve.workload.columns import IntArray
from simserve.workload.streams import random_stream
from simserve.workload.workload import build_workload

FOREVER = 1 << 62
"""A tick that no run reaches."""


def simulate(scenario: Scenario, progress: Callable[[float], None] | None = None) -> Result:
    """Run a scenario to its end, or to `run.max_time`; `progress` is told the share that is done, 0 to 1.

    The same scenario gives the same result, bit for bit, in any process.

    Raises:
        ScenarioError: the deployment cannot exist, or a trace cannot be read.
    """
    return build_simulation(scenario).run(progress)


def build_simulation(scenario: Scenario) -> "Simulation":
    """Fleet, clients and clock of a scenario.

    Raises:
        ScenarioError: as `simulate`.
    """
    return (
        Simulation(scenario) if scenario.cluster.pools is None else PooledSimulation(scenario, scenario.cluster.pools)
    )


class Simulation:
    """A fleet, its clients and their clock, ready to run once. `engine` is the question to one of its replicas."""

    def __init__(self, scenario: Scenario, engine: Scenario | None = None) -> None:
        self.scenario = scenario
        self.ledger = memory_ledger(engine or scenario)
        self.cost = build_step_cost(engine or scenario)
        self.workload = workload = build_workload(scenario)
        self.front_end = front_end(scenario)
        self.clock = Clock()
        patience = patience_of_classes(scenario.workload)
        waits_for_answers = bool(patience) or workload.users > 0 or bool((workload.arrival < 0).any())
        listener = self._answered if waits_for_answers else None
        self.replicas = self._fleet(listener)
        self.cluster = self._cluster(listener)
        open_the_door(self.cluster, scenario)
        self.clients = self._clients(patience, waits_for_answers)
        for replica in self.replicas:
            self._equip(replica)

    def _fleet(self, listener: Listener | None) -> list[Replica]:
        cluster = self.scenario.cluster
        if cluster.expert_parallel is not None and cluster.expert_parallel.data_parallel > 1:
            num_groups = cluster.replicas // cluster.expert_parallel.data_parallel
            return [rank for _ in range(num_groups) for rank in self._ranks(cluster.expert_parallel, listener)]
        return [self._replica(listener) for _ in range(cluster.replicas)]

    def _ranks(self, experts: ExpertParallelSpec, listener: Listener | None) -> list[LockstepReplica]:
        """Replicas that share their experts, and so step together."""
        scheduler = SCHEDULERS[policy_name(self.scenario.engine)]
        config = scheduler_config(self.scenario, self.ledger.num_gpu_blocks)
        group = Lockstep(self.clock, self.cost, asynchronous=config.async_scheduling)
        return [
            LockstepReplica(self.clock, scheduler(config), self.cost, group, listener=listener)
            for _ in range(experts.data_parallel)
        ]

    def _cluster(self, listener: Listener | None) -> Cluster:  # noqa: ARG002
        router = ROUTERS[self.scenario.cluster.router](self.replicas, random_stream(self.scenario.seed, "router"))
        return Cluster(self.replicas, router, self._prompts(), self.scenario.engine.max_model_len)

    def _clients(self, patience: Sequence[Patience], wait_for_answers: bool) -> Responsive | OpenLoop:
        """Who sends the requests."""
        common = self.clock, self.workload, self.front_end, self.cluster
        if patience:
            jitter_key = int(random_stream(self.scenario.seed, "backoff").integers(1 << 62))
            return Impatient(*common, patience=patience, jitter_key=jitter_key)
        return Responsive(*common) if wait_for_answers else OpenLoop(*common)

    def _replica(self, listener: Listener | None) -> Replica:
        scheduler = self._scheduler(self.scenario, self.ledger)
        if isinstance(self.cost, PipelineCost):
            return PipelineReplica(self.clock, scheduler, self.cost, listener=listener)
        if self.scenario.run.resolution == "kernels":
            gpu = Gpu.of(self.clock, self.scenario.cluster.gpu)
            return KernelReplica(self.clock, scheduler, self.cost, gpu, listener)
        skip = self.scenario.run.resolution == "runs"
        alone = self.scenario.cluster.replicas == 1
        return Replica(self.clock, scheduler, self.cost, skip_equal_steps=skip, listener=listener, alone=alone)

    def _scheduler(self, scenario: Scenario, ledger: MemoryLedger) -> Scheduler:
        """That of a replica of which `scenario` tells."""
        config, engine = scheduler_config(scenario, ledger.num_gpu_blocks), scenario.engine
        if engine.speculative is not None:
            return self._drafting(config, engine.speculative)
        if scenario.cluster.pipeline_parallel > 1:
            return ExplicitScheduler(config)
        return SCHEDULERS[policy_name(engine)](config)

    def _drafting(self, config: SchedulerConfig, spec: SpeculativeSpec) -> SpeculativeScheduler:
        seed = int(random_stream(self.scenario.seed, "acceptance").integers(1 << 62))
        acceptance = Acceptance(spec.acceptance, spec.match_rate, seed)
        return SpeculativeScheduler(config, speculation_by(spec.method, spec.num_speculative_tokens), acceptance)

    def _equip(self, replica: Replica) -> None:
        """What the policy of a replica needs beside it."""
        scheduler, batching = replica.scheduler, self.scenario.engine.static_batching
        if isinstance(scheduler, StaticScheduler) and batching is not None:
            BatchTimer(replica, scheduler, to_ticks(batching.timeout))
        if isinstance(scheduler, SwapScheduler):
            link = self.scenario.cluster.gpu.interconnect.host_bandwidth
            memory = CpuMemory(self.scenario.engine.swap_space or 0.0, self._kv_block_bytes, link)
            Swapper(replica, scheduler, memory, replica.gpu if isinstance(replica, KernelReplica) else None)

    @property
    def _kv_block_bytes(self) -> float:
        """Bytes on one GPU that a block of the scheduler stands for."""
        return self.ledger.block_bytes * self.ledger.allocated_blocks / self.ledger.num_gpu_blocks

    def _swaps(self) -> dict[str, object]:
        """How often requests were swapped out, and what was copied, both ways, on one GPU of each replica."""
        swapping = [one.scheduler for one in self.replicas if isinstance(one.scheduler, SwapScheduler)]
        if not swapping:
            return {}
        copied = sum(scheduler.num_copied_blocks for scheduler in swapping)
        return {
            "num_swaps": sum(scheduler.num_swaps for scheduler in swapping),
            "swapped_bytes": copied * self._kv_block_bytes,
        }

    def _dummy_steps(self) -> dict[str, int]:
        """Steps that a rank took for nobody, because others that share its experts had somebody."""
        ranks = [one for one in self.replicas if isinstance(one, LockstepReplica)]
        return {"dummy_steps": sum(rank.num_dummy_steps for rank in ranks)} if ranks else {}

    def _prompts(self) -> Prompts | None:
        """Where prompts hang in the prefix trie; None where nothing is shared or nothing is cached."""
        engine, workload = self.scenario.engine, self.workload
        sent_again = bool(patience_of_classes(self.scenario.workload))
        shared = sent_again or ((workload.prefix_group >= 0) | (workload.parent >= 0)).any()
        if not self._caches_prefixes() or not shared:
            return None
        return Prompts(workload, engine.block_size, engine.max_model_len, sent_again)

    def _caches_prefixes(self) -> bool:
        return self.scenario.engine.enable_prefix_caching

    def _answered(self, request: Request, known: int) -> None:
        assert isinstance(self.clients, Responsive)
        self.clients.answered(request, known)

    def run(self, progress: Callable[[float], None] | None = None) -> Result:
        """Let it happen."""
        self.clients.progress = progress
        max_time = self.scenario.run.max_time
        horizon = FOREVER if max_time is None else to_ticks(max_time)
        self.clock.run(None if max_time is None else horizon)
        for replica in self.replicas:
            replica.close(horizon)
        return self._result(horizon)

    def _result(self, horizon: int) -> Result:
        at = self.clients.arrival
        sent = records.Sent(
            np.where(at < horizon, at, -1), front_end_delay(self.front_end, self.workload), self.front_end.delivery
        )
        requests = self._requests(sent)
        attempts: records.Columns = {}
        gaps = records.gap_columns(self.replicas, requests.get("prefill_replica"), self._row_of())
        if isinstance(self.clients, Impatient):
            requests, gaps, attempts = of_attempts(self.clients.log, self.workload, requests, gaps)
        if self.workload.client_input_len is not None:
            requests["client_input_len"] = self.workload.client_input_len
        steps = records.step_columns(self.replicas) | speculation_columns(self.replicas)
        return Result(
            scenario=self.scenario,
            requests=requests,
            steps=steps,
            gaps=gaps,
            attempts=attempts,
            class_names=self.workload.class_names,
            memory=self.ledger.as_dict(),
            meta=self._meta(float(steps["end"].max(initial=0.0)))
            | self._costs(steps)
            | speculation_counts(self.replicas)
            | self._refused(),
        )

    def _requests(self, sent: records.Sent, num_prefill: int = 0) -> records.Columns:
        """A row for each request; where clients send again, for each attempt."""
        rejected, max_model_len = self.cluster.rejected, self.scenario.engine.max_model_len
        if isinstance(self.clients, Impatient):
            return attempt_columns(
                self.clients.log, self.workload, sent, self.replicas, max_model_len, num_prefill=num_prefill
            )
        return records.request_columns(
            self.workload, sent, self.replicas, rejected, max_model_len, num_prefill=num_prefill
        )

    def _row_of(self) -> Callable[[IntArray], IntArray]:
        """From the requests of the engine to the rows of `_requests`."""
        return place_of_attempts(self.clients.log) if isinstance(self.clients, Impatient) else lambda ids: ids

    def _costs(self, steps: records.Columns) -> dict[str, object]:
        breakdown = self.cost.breakdown(steps)
        if waited := to_seconds(sum(one.waited for one in self.replicas if isinstance(one, LockstepReplica))):
            breakdown |= {"peers": waited, "host": max(0.0, breakdown.get("host", 0.0) - waited)}
        return {
            "step_time_breakdown": breakdown,
            "extrapolated_steps": self.cost.extrapolated_steps(steps),
        }

    def _refused(self) -> dict[str, object]:
        """Attempts that were refused, by reason, where more than the length of a prompt is a reason."""
        if self.cluster.rate_limit is None and not self.cluster.queue_limits:
            return {}
        return {"refused": {why.name.lower(): self.cluster.refusals.count(why) for why in Refusal}}

    def _meta(self, duration: float) -> dict[str, object]:
        schedulers = [replica.scheduler for replica in self.replicas]
        return {
            "version": __version__,
            "seed": self.scenario.seed,
            "profile_hash": self.scenario.cluster.gpu.profile_hash,
            "cost_level": cost_level(self.scenario),
            "total_steps": sum(scheduler.num_steps for scheduler in schedulers),
            "skipped_steps": sum(replica.num_skipped_steps for replica in self.replicas),
            "prefix_cache_queries": sum(scheduler.num_cache_queries for scheduler in schedulers),
            "prefix_cache_hits": sum(scheduler.num_cache_hits for scheduler in schedulers),
            "num_preemptions": sum(scheduler.num_preemptions for scheduler in schedulers),
            "num_thrashings": sum(scheduler.num_thrashings for scheduler in schedulers),
            **self._swaps(),
            **self._dummy_steps(),
            "events": self.clock.num_events,
            "scheduler_calls": sum(scheduler.num_calls for scheduler in schedulers),
            "num_gpu_blocks": schedulers[0].config.num_gpu_blocks,
            "kv_block_size": schedulers[0].block_size,
            "skipped_rows": self.workload.skipped_rows,
            "input_tokens_counted_by": self.workload.input_counted_by,
            "shortened_sessions": self.workload.shortened_sessions,
            "duration": duration,
            "extensions": extensions(self.scenario.engine),
        }


class Pool(NamedTuple):
    """One half of a disaggregated fleet: the question to it alone, and what its replicas hold and cost."""

    scenario: Scenario
    ledger: MemoryLedger
    cost: StepCost

    @classmethod
    def of(cls, scenario: Scenario) -> "Pool":
        """The pool that a scenario without pools describes."""
        return cls(scenario, memory_ledger(scenario), build_step_cost(scenario))


class PooledSimulation(Simulation):
    """A fleet of prefill replicas and decode replicas. What a run says of one replica it says of a decode replica."""

    def __init__(self, scenario: Scenario, pools: PoolsSpec) -> None:
        self.prefill, self.decode = (Pool.of(scenario.of_pool(name)) for name in POOLS)
        self._stay_below = pools.stay_below
        super().__init__(scenario, self.decode.scenario)

    @property
    def num_prefill(self) -> int:
        """Prefill replicas; they come before the others."""
        return self.prefill.scenario.cluster.replicas

    def _fleet(self, listener: Listener | None) -> list[Replica]:
        # A look into the prefix cache of a decode replica must find it as it is, not as it was when a run began.
        skips = not (self._stay_below and self._caches_prefixes())
        prefill = [self._member(self.prefill, self._prefilled) for _ in range(self.num_prefill)]
        decode_replicas = range(self.decode.scenario.cluster.replicas)
        return prefill + [self._member(self.decode, listener, skips) for _ in decode_replicas]

    def _member(self, pool: Pool, listener: Listener | None, skips: bool = True) -> Replica:
        scheduler = self._scheduler(pool.scenario, pool.ledger)
        if isinstance(pool.cost, PipelineCost):
            return PipelineReplica(self.clock, scheduler, pool.cost, listener=listener)
        skips = skips and self.scenario.run.resolution == "runs"
        return Replica(self.clock, scheduler, pool.cost, skip_equal_steps=skips, listener=listener)

    def _cluster(self, listener: Listener | None) -> Disaggregation:
        pools = self.replicas[: self.num_prefill], self.replicas[self.num_prefill :]
        routers = self._router(self.prefill, pools[0], "prefill_router"), self._router(self.decode, pools[1], "router")
        max_model_len = self.decode.scenario.engine.max_model_len
        link, stay_below = self._kv_link(), self._stay_below
        return Disaggregation(
            pools, routers, self._prompts(), max_model_len, link=link, stay_below=stay_below, listener=listener
        )

    def _router(self, pool: Pool, replicas: Sequence[Replica], stream: str) -> Router:
        return ROUTERS[pool.scenario.cluster.router](replicas, random_stream(self.scenario.seed, stream))

    def _kv_link(self) -> KvLink:
        spec, own = self.scenario.cluster.kv_link, self.decode.scenario
        assert spec is not None, "pools have a link"
        models = models_with_kv(own.engine.speculative, own.model)
        num_bytes = partial(sent_bytes, models, own.cluster.tensor_parallel, own.engine.block_size)
        network = Network(self.clock, [*(spec.bandwidth for _ in self.replicas), spec.backbone])
        return KvLink(network, to_ticks(spec.latency), num_bytes)

    def _caches_prefixes(self) -> bool:
        return any(pool.scenario.engine.enable_prefix_caching for pool in (self.prefill, self.decode))

    def _prefilled(self, request: Request, known: int) -> None:
        assert isinstance(self.cluster, Disaggregation)
        self.cluster.prefilled(request, known)

    def _requests(self, sent: records.Sent, num_prefill: int = 0) -> records.Columns:  # noqa: ARG002
        assert isinstance(self.cluster, Disaggregation)
        columns = super()._requests(sent, self.num_prefill)
        return columns | records.transfer_columns(self.cluster.transfers, len(columns["status"]), self._row_of())

    def _costs(self, steps: records.Columns) -> dict[str, object]:
        in_prefill = steps["replica"] < self.num_prefill
        breakdown: dict[str, float] = {}
        extrapolated = 0
        for pool, rows in ((self.prefill, in_prefill), (self.decode, ~in_prefill)):
            own = {name: column[rows] for name, column in steps.items()}
            extrapolated += pool.cost.extrapolated_steps(own)
            for group, time in pool.cost.breakdown(own).items():
                breakdown[group] = breakdown.get(group, 0.0) + time
        return {
            "step_time_breakdown": breakdown,
            "extrapolated_steps": extrapolated,
            "pools": {"prefill": self._facts(self.prefill), "decode": self._facts(self.decode)},
        }

    @staticmethod
    def _facts(pool: Pool) -> dict[str, int]:
        cluster = pool.scenario.cluster
        return {
            "replicas": cluster.replicas,
            "num_gpus": cluster.num_gpus,
            "num_gpu_blocks": pool.ledger.num_gpu_blocks,
        }


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
