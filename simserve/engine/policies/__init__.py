"""The policies that a scenario can ask for: vLLM's own, and those it is compared with.

`engine.scheduler` names one of `SCHEDULERS`. Beside them stand `RequestWise` (`simserve.engine.request_wise`), vLLM's
policy under pipeline stages and speculative decoding, `Swap`, with `engine.preemption: swap`, and `WithoutKv`, with
`engine.kv_allocation: none`. A policy is a `Scheduler` in a file of its own, and a line here.
"""

from collections.abc import Callable

from simserve.engine.config import SchedulerConfig
from simserve.engine.policies.prefill_first import PrefillFirst
from simserve.engine.policies.static import Static
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.scheduler import Scheduler
from simserve.spec.names import SchedulerName

SCHEDULERS: dict[SchedulerName, Callable[[SchedulerConfig], Scheduler]] = {
    "vllm_v1": VllmV1,
    "prefill_first": PrefillFirst,
    "static": Static,
}
