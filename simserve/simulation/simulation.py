"""A fleet, its clients and their clock: built from a scenario, run once, and written down."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from simserve.cluster.clients import Clients, OpenLoop, Responsive
from simserve.cluster.impatient import Impatient, patience_of_classes
from simserve.cluster.pool import Pool
from simserve.cluster.records import step_columns
from simserve.cost import build_step_cost, front_end
from simserve.engine.clock import FOREVER, Clock
from simserve.engine.ledger import Fetch
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import Request
from simserve.simulation import counters
from simserve.simulation.fleet import StepCostOf, build_fleet
from simserve.simulation.replicas import build_ranks, build_replica
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_ticks
from simserve.workload.streams import random_stream
from simserve.workload.workload import build_workload


class Simulation:
    """A fleet, its clients and their clock, ready to run once. `step_cost` tells what the steps of a pool take.

    Raises:
        ScenarioError: the deployment cannot exist, or a trace cannot be read.
    """

    def __init__(self, scenario: Scenario, step_cost: StepCostOf = build_step_cost) -> None:
        self.scenario = scenario
        self.workload = workload = build_workload(scenario)
        self.front_end = front_end(scenario)
        self.clock = Clock()
        self._patience = patience_of_classes(scenario.workload)
        waits_for_answers = bool(self._patience) or workload.users > 0 or bool((workload.arrival < 0).any())
        self._waits = waits_for_answers or self.front_end.busy > 0
        listener = self._answered if self._waits else None
        self.fleet = build_fleet(scenario, self.clock, workload, self._replicas, step_cost, listener=listener)
        self.clients = self._clients()

    @property
    def replicas(self) -> Sequence[Replica]:
        """All replicas that ever were in the fleet, by id."""
        return self.fleet.replicas

    def _replicas(self, pool: Pool, listener: Listener | None, fetch: Fetch | None) -> Sequence[Replica]:
        """What joins a pool together: a replica, or all that share their experts."""
        question = pool.scenario
        experts = question.cluster.expert_parallel
        common = self.clock, question, pool.ledger, pool.cost, listener
        if experts is not None and experts.data_parallel > 1:
            return build_ranks(*common)
        skips, alone = not pool.is_looked_into, self.scenario.cluster.num_engines == 1
        return [build_replica(*common, skips=skips, alone=alone, fetch=fetch)]

    def _clients(self) -> Clients:
        """Who sends the requests; some of them may wait for an answer, or for an API server."""
        common = self.clock, self.workload, self.front_end, self.fleet
        num_api_servers = self.scenario.cluster.num_api_servers
        if self._patience:
            jitter_key = int(random_stream(self.scenario.seed, "backoff").integers(1 << 62))
            return Impatient(*common, patience=self._patience, jitter_key=jitter_key, num_api_servers=num_api_servers)
        if self._waits:
            return Responsive(*common, num_api_servers)
        return OpenLoop(*common, fed=self.scenario.run.resolution == "runs")

    def _answered(self, request: Request, known: int) -> None:
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
        requests, gaps, attempts = self.clients.tables(horizon)
        if self.workload.client_input_len is not None:
            requests["client_input_len"] = self.workload.client_input_len
        steps = step_columns(self.replicas)
        # What a run says of one replica it says of one that ends answers.
        pools, own = self.fleet.pools, self.fleet.pools[-1]
        return Result(
            scenario=self.scenario,
            requests=requests,
            steps=steps,
            gaps=gaps,
            attempts=attempts,
            class_names=self.workload.class_names,
            memory=own.ledger.as_dict(),
            meta={
                **counters.origin(self.scenario, self.workload),
                **counters.of_engines(self.replicas, own.ledger),
                **self.fleet.counters(),
                **counters.of_steps(pools, steps),
                **counters.of_pools(pools),
                "events": self.clock.num_events,
                "duration": float(steps["end"].max(initial=0.0)),
            },
        )


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Let Python look for cycles a hundred times less often: a run makes millions of objects and hardly a cycle."""
    before = gc.get_threshold()
    gc.set_threshold(100 * before[0], *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
