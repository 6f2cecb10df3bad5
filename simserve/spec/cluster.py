"""The fleet: which GPU, how many replicas, over how many GPUs each is cut, and who sends requests where."""

from typing import Any, ClassVar

from pydantic import field_validator

from simserve.spec.experts import ExpertParallelSpec
from simserve.spec.hardware import GpuSpec
from simserve.spec.names import RouterName
from simserve.spec.pools import POOLS, KvLinkSpec, PoolSpec, PoolsSpec
from simserve.spec.quantities import Dollars, PositiveCount
from simserve.spec.rate_limit import RateLimitSpec
from simserve.spec.strict import Strict


class ClusterSpec(Strict):
    """Identical replicas of one engine behind one router."""

    NOT_MODELLED: ClassVar = {
        "autoscaling": "autoscaling",
        "data_parallel": "data parallelism inside one engine (replicas are whole engines)",
    }

    gpu: GpuSpec
    replicas: PositiveCount = 1
    """With `pools`: how many times both of them are there, behind the same routers."""
    tensor_parallel: PositiveCount = 1
    """GPUs that share every layer."""
    pipeline_parallel: PositiveCount = 1
    """Stages, each of `tensor_parallel` GPUs, that share the layers of a replica among them."""
    expert_parallel: ExpertParallelSpec | None = None
    """How the experts of a mixture are spread; `true` takes the defaults, null cuts each of them over all GPUs."""
    router: RouterName = "round_robin"
    api_servers: PositiveCount | None = None
    """Processes before the engines that take requests (`--api-server-count`), busy for `cost.host.front_end_busy` with
    each; null: one for each replica, with pools one for each prefill replica."""
    rate_limit: RateLimitSpec | None = None
    price_per_gpu_hour: Dollars | None = None
    pools: PoolsSpec | None = None
    kv_link: KvLinkSpec | None = None

    @field_validator("expert_parallel", mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica; with pools of one set of both."""
        if self.pools is not None:
            return sum(self.of_pool(name).num_gpus for name in POOLS) // self.replicas
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole fleet."""
        return self.replicas * self.gpus_per_replica

    @property
    def num_engines(self) -> int:
        """Replicas of the whole fleet, those of both pools where there are pools."""
        if self.pools is None:
            return self.replicas
        return sum(self.of_pool(name).replicas for name in POOLS)

    @property
    def num_api_servers(self) -> int:
        """Processes that take requests."""
        if self.api_servers is not None:
            return self.api_servers
        return self.replicas if self.pools is None else self.of_pool("prefill").replicas

    def of_pool(self, name: str) -> "ClusterSpec":
        """One of the pools, `prefill` or `decode`, as a fleet of its own."""
        pool: PoolSpec = getattr(self.pools, name)
        return self.model_copy(
            update={
                "replicas": self.replicas * pool.replicas,
                "tensor_parallel": pool.tensor_parallel or self.tensor_parallel,
                "pipeline_parallel": pool.pipeline_parallel or self.pipeline_parallel,
                "router": pool.router or self.router,
                "pools": None,
                "kv_link": None,
            }
        )
