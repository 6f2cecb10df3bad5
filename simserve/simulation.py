"""One run: from a scenario to its records."""

from collections.abc import Callable

import numpy as np

from simserve import __version__
from simserve.cluster import records
from simserve.cluster.clients import OpenLoop, Responsive, front_end_delay
from simserve.cluster.cluster import Cluster
from simserve.cluster.prompts import Prompts
from simserve.cluster.router import ROUTERS
from simserve.cost import build_step_cost, cost_level, front_end, memory_ledger
from simserve.cost.pipeline import PipelineCost
from simserve.engine.config import SchedulerConfig
from simserve.engine.explicit import ExplicitScheduler
from simserve.engine.gpu.device import Gpu
from simserve.engine.gpu.replica import KernelReplica
from simserve.engine.instant import Clock
from simserve.engine.pipeline import PipelineReplica
from simserve.engine.policies import SCHEDULERS
from simserve.engine.policies.batch_timer import BatchTimer
from simserve.engine.policies.static import StaticScheduler
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import Request
from simserve.spec.policies import extensions
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_ticks
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
    return Simulation(scenario).run(progress)


class Simulation:
    """A fleet, its clients and their clock, ready to run once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.ledger = memory_ledger(scenario)
        self.cost = build_step_cost(scenario)
        self.workload = workload = build_workload(scenario)
        self.front_end = front_end(scenario)
        self.clock = Clock()
        waits_for_answers = workload.users > 0 or bool((workload.arrival < 0).any())
        listener = self._answered if waits_for_answers else None
        self.replicas = [self._replica(listener) for _ in range(scenario.cluster.replicas)]
        router = ROUTERS[scenario.cluster.router](self.replicas, random_stream(scenario.seed, "router"))
        self.cluster = Cluster(self.replicas, router, self._prompts(), scenario.engine.max_model_len)
        clients = Responsive if waits_for_answers else OpenLoop
        self.clients: Responsive | OpenLoop = clients(self.clock, workload, self.front_end, self.cluster)
        for replica in self.replicas:
            self._equip(replica)

    def _replica(self, listener: Listener | None) -> Replica:
        config = scheduler_config(self.scenario, self.ledger.num_gpu_blocks)
        if isinstance(self.cost, PipelineCost):
            return PipelineReplica(self.clock, ExplicitScheduler(config), self.cost, listener=listener)
        scheduler = SCHEDULERS[self.scenario.engine.scheduler](config)
        if self.scenario.run.resolution == "kernels":
            gpu = Gpu.of(self.clock, self.scenario.cluster.gpu)
            return KernelReplica(self.clock, scheduler, self.cost, gpu, listener)
        skip = self.scenario.run.resolution == "runs"
        alone = self.scenario.cluster.replicas == 1
        return Replica(self.clock, scheduler, self.cost, skip_equal_steps=skip, listener=listener, alone=alone)

    def _equip(self, replica: Replica) -> None:
        """What the policy of a replica needs beside it."""
        scheduler, batching = replica.scheduler, self.scenario.engine.static_batching
        if isinstance(scheduler, StaticScheduler) and batching is not None:
            BatchTimer(replica, scheduler, to_ticks(batching.timeout))

    def _prompts(self) -> Prompts | None:
        """Where prompts hang in the prefix trie; None where nothing is shared or nothing is cached."""
        engine, workload = self.scenario.engine, self.workload
        if not engine.enable_prefix_caching or not ((workload.prefix_group >= 0) | (workload.parent >= 0)).any():
            return None
        return Prompts(workload, engine.block_size, engine.max_model_len)

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
        requests = records.request_columns(
            self.workload, sent, self.replicas, self.cluster.rejected, self.scenario.engine.max_model_len
        )
        if self.workload.client_input_len is not None:
            requests["client_input_len"] = self.workload.client_input_len
        gaps = records.gap_columns(self.replicas)
        steps = records.step_columns(self.replicas)
        return Result(
            scenario=self.scenario,
            requests=requests,
            steps=steps,
            gaps=gaps,
            class_names=self.workload.class_names,
            memory=self.ledger.as_dict(),
            meta=self._meta(float(steps["end"].max(initial=0.0)))
            | {
                "step_time_breakdown": self.cost.breakdown(steps),
                "extrapolated_steps": self.cost.extrapolated_steps(steps),
            },
        )

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


def scheduler_config(scenario: Scenario, num_gpu_blocks: int) -> SchedulerConfig:
    """What a scenario tells the scheduler."""
    engine, block_size = scenario.engine, scenario.engine.block_size
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
