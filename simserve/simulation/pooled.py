"""A run of a disaggregated fleet: prefill replicas, decode replicas, and the link between them."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from simserve.cluster import records
from simserve.cluster.disaggregation import Disaggregation, KvLink
from simserve.cluster.link import Network
from simserve.cluster.router import ROUTERS, Router
from simserve.cost import MemoryLedger, StepCost, build_step_cost, memory_ledger
from simserve.cost.drafter import models_with_kv
from simserve.cost.kv_pool import sent_bytes
from simserve.engine.ledger import Fetch
from simserve.engine.replica import Listener, Replica
from simserve.engine.request import Request
from simserve.simulation.replicas import build_replica
from simserve.simulation.simulation import Simulation
from simserve.spec.pools import POOLS, PoolsSpec
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_ticks
from simserve.workload.streams import random_stream


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
        return prefill + [self._member(self.decode, listener, skips=skips, fetch=self._fetch) for _ in decode_replicas]

    def _member(
        self, pool: Pool, listener: Listener | None, *, skips: bool = True, fetch: Fetch | None = None
    ) -> Replica:
        return build_replica(self.clock, pool.scenario, pool.ledger, pool.cost, listener, skips=skips, fetch=fetch)

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

    def _fetch(self, request: Request, num_cached_blocks: int) -> None:
        assert isinstance(self.cluster, Disaggregation)
        self.cluster.fetch(request, num_cached_blocks)

    def _prefilled(self, request: Request, known: int) -> None:
        assert isinstance(self.cluster, Disaggregation)
        self.cluster.prefilled(request, known)

    def _requests(self, sent: records.Sent, num_prefill: int = 0) -> records.Columns:  # noqa: ARG002
        assert isinstance(self.cluster, Disaggregation)
        columns = super()._requests(sent, self.num_prefill)
        return columns | records.transfer_columns(self.cluster.transfers, len(columns["status"]), self._row_of())

    def _costs(self, steps: records.Columns, waited: float) -> dict[str, object]:  # noqa: ARG002 (no ranks in pools)
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
