"""The fleet: which GPU, how many replicas, over how many GPUs each is cut, and who sends requests where."""

from typing import Any, ClassVar, Literal

from pydantic import field_validator

from simserve.spec.experts import ExpertParallelSpec
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
    }

    gpu: GpuSpec
    replicas: PositiveCount = 1
    tensor_parallel: PositiveCount = 1
    """GPUs that share every layer."""
    pipeline_parallel: PositiveCount = 1
    """Stages, each of `tensor_parallel` GPUs, that share the layers of a replica among them."""
    expert_parallel: ExpertParallelSpec | None = None
    """How the experts of a mixture are spread; `true` takes the defaults, null cuts each of them over all GPUs."""
    router: Literal["round_robin", "random", "least_requests"] = "round_robin"
    price_per_gpu_hour: Dollars | None = None

    @field_validator("expert_parallel", mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole fleet."""
        return self.replicas * self.gpus_per_replica
