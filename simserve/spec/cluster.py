"""The fleet: which GPU, how many replicas, how each is cut, and who sends requests where."""

from typing import Literal

from simserve.spec.hardware import GpuSpec
from simserve.spec.quantities import Dollars, PositiveCount
from simserve.spec.strict import Strict


class ClusterSpec(Strict):
    """Identical replicas of one engine behind one router."""

    NOT_MODELLED = {
        "pools": "disaggregation into prefill and decode pools",
        "kv_link": "the transfer of KV between pools",
        "rate_limit": "a rate limit before the router",
    }

    gpu: GpuSpec
    replicas: PositiveCount = 1
    tensor_parallel: PositiveCount = 1
    """GPUs of one replica."""
    router: Literal["round_robin", "random", "least_requests"] = "round_robin"
    price_per_gpu_hour: Dollars | None = None

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole fleet."""
        return self.replicas * self.tensor_parallel
