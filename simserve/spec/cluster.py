"""The fleet: which GPU, how many replicas, over how many GPUs each is cut, and who sends requests where."""

from typing import ClassVar, Literal

from simserve.spec.hardware import GpuSpec
from simserve.spec.quantities import Dollars, PositiveCount
from simserve.spec.strict import Strict


class ClusterSpec(Strict):
    """Identical replicas of one engine behind one router."""

    NOT_MODELLED: ClassVar = {
        "pools": "disaggregation into prefill and decode pools",
        "kv_link": "the transfer of KV between pools",
        "rate_limit": "a rate limit before the router",
        "autoscaling": "autoscaling",
        "data_parallel": "data parallelism inside one engine (replicas are whole engines)",
        "expert_parallel": "expert parallelism",
    }

    gpu: GpuSpec
    replicas: PositiveCount = 1
    tensor_parallel: PositiveCount = 1
    """GPUs that share every layer."""
    pipeline_parallel: PositiveCount = 1
    """Stages, each of `tensor_parallel` GPUs, that share the layers of a replica among them."""
    router: Literal["round_robin", "random", "least_requests"] = "round_robin"
    price_per_gpu_hour: Dollars | None = None

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole fleet."""
        return self.replicas * self.gpus_per_replica
