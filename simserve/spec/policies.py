"""What vLLM does not have and a scenario may ask for all the same: other schedulers, other ways to keep KV.

What a policy needs is filled in where the scenario leaves it out.
"""

from collections.abc import Mapping
from typing import Any

from simserve.spec.quantities import Seconds
from simserve.spec.strict import Strict

SWAP_SPACE = "4 GiB"
"""CPU memory of one GPU for swapping: the default of vLLM before V1 (0.8, `--swap-space`)."""


class StaticBatchingSpec(Strict):
    """When a static batch begins."""

    timeout: Seconds = 0.0
    """How long a request waits for its batch to be full (Triton's `max_queue_delay`, 0 by default, too)."""


def fill_policies(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that are others than vLLM's under the policies that the engine section names."""
    defaults: dict[str, Any] = {}
    if settings.get("kv_allocation") in {"contiguous", "none"}:
        defaults["enable_prefix_caching"] = False
    if settings.get("kv_allocation") == "none":
        defaults["async_scheduling"] = False
    if settings.get("scheduler") == "static":
        defaults |= {"async_scheduling": False, "static_batching": {}}
    if settings.get("preemption") == "swap":
        defaults |= {"async_scheduling": False, "swap_space": SWAP_SPACE}
    return defaults
