"""The schedulers that a scenario can name as `engine.scheduler`: vLLM's own, and the policies it is compared with.

A policy is a subclass of `Scheduler` in a file of its own, and a line here.
"""

from collections.abc import Callable

from simserve.engine.config import SchedulerConfig
from simserve.engine.policies.prefill_first import PrefillFirstScheduler
from simserve.engine.policies.static import StaticScheduler
from simserve.engine.scheduler import Scheduler

SCHEDULERS: dict[str, Callable[[SchedulerConfig], Scheduler]] = {
    "vllm_v1": Scheduler,
    "prefill_first": PrefillFirstScheduler,
    "static": StaticScheduler,
}
