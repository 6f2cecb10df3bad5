"""The schedulers that a scenario can ask for: vLLM's own, and the policies it is compared with.

They are named by `engine.scheduler`; `swap` is `vllm_v1` with `engine.preemption: swap`. A policy is a subclass of
`Scheduler` in a file of its own, and a line here.
"""

from collections.abc import Callable

from simserve.engine.config import SchedulerConfig
from simserve.engine.policies.prefill_first import PrefillFirstScheduler
from simserve.engine.policies.static import StaticScheduler
from simserve.engine.policies.swap import SwapScheduler
from simserve.engine.scheduler import Scheduler

SCHEDULERS: dict[str, Callable[[SchedulerConfig], Scheduler]] = {
    "vllm_v1": Scheduler,
    "prefill_first": PrefillFirstScheduler,
    "static": StaticScheduler,
    "swap": SwapScheduler,
}
