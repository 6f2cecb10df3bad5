"""A fleet, its clients and their clock: built from a scenario, run once, and written down."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from simserve.cluster import records
from simserve.cluster.admission import open_the_door
from simserve.cluster.attempts import attempt_columns, of_attempts, place_of_attempts
from simserve.cluster.clients import OpenLoop, Responsive
from simserve.cluster.cluster import Cluster
from simserve.cluster.impatient import Impatient, Patience, patience_of_classes
from simserve.cluster.prompts import Prompts
from simserve.cluster.router import ROUTERS
from simserve.cost import StepCost, build_step_cost, front_end, memory_ledger
from simserve.engine.clock import FOREVER, Clock
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import Request
from simserve.simulation import counters
from simserve.simulation.replicas import build_ranks, build_replica
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds, to_ticks
from simserve.workload.columns import IntArray
from simserve.workload.streams import random_stream
from simserve.workload.workload import build_workload


class Simulation:
    """A fleet, its clients and their clock, ready to run once. `engine` is the question to one of its replicas; `cost`
    says what steps take, where it is not the scenario's cost model.
    """

    def __init__(self, scenario: Scenario, engine: Scenario | None = None, *, cost: StepCost | None = None) -> None:
        self.scenario = scenario
        self.ledger = memory_ledger(engine or scenario)
        self.cost = build_step_cost(engine or scenario) if cost is None else cost
        self.workload = workload = build_workload(scenario)
        self.front_end = front_end(scenario)
        self.clock = Clock()
        patience = patience_of_classes(scenario.workload)
        waits = bool(patience) or workload.users > 0 or bool((workload.arrival < 0).any()) or self.front_end.busy > 0
        listener = self._answered if waits else None
        self.replicas = self._fleet(listener)
        self.cluster = self._cluster(listener)
        open_the_door(self.cluster, scenario)
        self.clients = self._clients(patience, waits)

    def _fleet(self, listener: Listener | None) -> list[Replica]:
        cluster = self.scenario.cluster
        if cluster.expert_parallel is not None and cluster.expert_parallel.data_parallel > 1:
            groups = range(cluster.replicas // cluster.expert_parallel.data_parallel)
            return [rank for _ in groups for rank in self._ranks(listener)]
        return [self._replica(listener) for _ in range(cluster.replicas)]

    def _ranks(self, listener: Listener | None) -> Sequence[Replica]:
        return build_ranks(self.clock, self.scenario, self.ledger, self.cost, listener)

    def _replica(self, listener: Listener | None) -> Replica:
        alone = self.scenario.cluster.replicas == 1
        return build_replica(self.clock, self.scenario, self.ledger, self.cost, listener, alone=alone)

    def _cluster(self, listener: Listener | None) -> Cluster:  # noqa: ARG002
        router = ROUTERS[self.scenario.cluster.router](self.replicas, random_stream(self.scenario.seed, "router"))
        return Cluster(self.replicas, router, self._prompts(), self.scenario.engine.max_model_len)

    def _clients(self, patience: Sequence[Patience], waits: bool) -> Responsive | OpenLoop:
        """Who sends the requests; `waits`: some of them for an answer, or for an API server."""
        common = self.clock, self.workload, self.front_end, self.cluster
        num_api_servers = self.scenario.cluster.num_api_servers
        if patience:
            jitter_key = int(random_stream(self.scenario.seed, "backoff").integers(1 << 62))
            return Impatient(*common, patience=patience, jitter_key=jitter_key, num_api_servers=num_api_servers)
        if waits:
            return Responsive(*common, num_api_servers)
        return OpenLoop(*common, fed=self.scenario.run.resolution == "runs")

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
        with _rarely_collected():
            self.clock.run(None if max_time is None else horizon)
        for replica in self.replicas:
            replica.close(horizon)
        return self._result(horizon)

    def _result(self, horizon: int) -> Result:
        at = self.clients.arrival
        sent = records.Sent(np.where(at < horizon, at, -1), self.clients.delays(), self.front_end.delivery)
        requests = self._requests(sent)
        attempts: records.Columns = {}
        gaps = records.gap_columns(self.replicas, requests.get("prefill_replica"), self._row_of())
        if isinstance(self.clients, Impatient):
            requests, gaps, attempts = of_attempts(self.clients.log, self.workload, requests, gaps)
        if self.workload.client_input_len is not None:
            requests["client_input_len"] = self.workload.client_input_len
        steps = records.step_columns(self.replicas)
        engines = counters.of_engines(self.replicas, self.ledger)
        waited = engines.pop("waited_for_peers", 0)
        assert isinstance(waited, int)
        return Result(
            scenario=self.scenario,
            requests=requests,
            steps=steps,
            gaps=gaps,
            attempts=attempts,
            class_names=self.workload.class_names,
            memory=self.ledger.as_dict(),
            meta={
                **counters.origin(self.scenario, self.workload),
                **engines,
                **counters.of_the_door(self.cluster),
                **self._costs(steps, to_seconds(waited)),
                "events": self.clock.num_events,
                "duration": float(steps["end"].max(initial=0.0)),
            },
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

    def _costs(self, steps: records.Columns, waited: float) -> dict[str, object]:
        """What the steps were made of; in `waited` seconds of them a GPU waited for its peers."""
        breakdown = self.cost.breakdown(steps)
        if waited:
            breakdown |= {"peers": waited, "host": max(0.0, breakdown.get("host", 0.0) - waited)}
        return {
            "step_time_breakdown": breakdown,
            "extrapolated_steps": self.cost.extrapolated_steps(steps),
        }


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Let Python look for cycles a hundred times less often: a run makes millions of objects and hardly a cycle."""
    before = gc.get_threshold()
    gc.set_threshold(100 * before[0], *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
