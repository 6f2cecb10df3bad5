"""Expert parallelism: the experts of a mixture lie whole on some GPUs."""

from typing import Annotated, Literal

from pydantic import Field

from simserve.spec.quantities import Number, PositiveCount
from simserve.spec.strict import Strict


class ExpertParallelSpec(Strict):
    """Experts lie whole on the `tensor_parallel` GPUs of a stage, so many on each, in place of every GPU holding a part
    of each expert; attention and shared experts are cut as ever.
    """

    communication: Literal["all_reduce", "all_to_all"] = "all_reduce"
    """`all_reduce`: every GPU has all tokens, serves those of its experts, and results are summed over the GPUs (vLLM's
    `enable_expert_parallel` without data parallelism). `all_to_all`: each has its share of the tokens, sends them to
    their experts and gets results back (SGLang's `moe_a2a_backend: deepep`)."""
    data_parallel: PositiveCount = 1
    """Replicas that share the experts, too: each holds its part of them and serves the tokens of all these replicas,
    which are gathered before the experts and scattered behind them (vLLM's `data_parallel_size` beside
    `enable_expert_parallel`, its default backend). They take every step together: see `simserve.engine.pace.ranks`."""
    imbalance: Annotated[Number, Field(ge=1)] = 1.0
    """Load of the busiest GPU over the mean that the router's preferences cause, beside the chance that is there in any
    batch; 1 is what a perfect balancer reaches."""
