"""What vLLM does not have and a scenario may ask for all the same: other schedulers, other ways to keep KV.

What a policy needs is filled in where the scenario leaves it out, and what contradicts it is refused.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from simserve.spec.quantities import Seconds
from simserve.spec.strict import Strict

if TYPE_CHECKING:
    from simserve.spec.engine import EngineSpec


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


def policy_problems(engine: "EngineSpec") -> Iterator[tuple[str, str]]:
    """Key path of every setting that contradicts a policy, and what to do about it."""
    if engine.kv_allocation == "contiguous" and engine.enable_prefix_caching:
        why = "contiguous KV shares nothing: each request has a place of its own"
        yield "engine.enable_prefix_caching", f"{why}; leave it out or use kv_allocation: paged"
    if engine.kv_allocation == "none":
        yield from _without_kv_problems(engine)
    if engine.scheduler == "static":
        yield from _static_problems(engine)
    elif engine.static_batching is not None:
        yield "engine.static_batching", f"would be ignored by scheduler: {engine.scheduler}; state scheduler: static"
    if engine.preemption == "swap":
        yield from _swap_problems(engine)
    elif engine.swap_space is not None:
        yield "engine.swap_space", "would be ignored: nothing is swapped; state preemption: swap"


def _without_kv_problems(engine: "EngineSpec") -> Iterator[tuple[str, str]]:
    why = "without a KV cache"
    if engine.enable_prefix_caching:
        yield "engine.enable_prefix_caching", f"{why} there is none of prefixes either; leave it out"
    if engine.async_scheduling:
        yield "engine.async_scheduling", f"{why} a step needs the token of the one before; leave it out"
    if engine.scheduling_policy != "fcfs":
        yield "engine.scheduling_policy", f"{why} only first come, first served is modelled; leave it out"
    if engine.max_num_batched_tokens < engine.max_model_len:
        least = f"raise it to {engine.max_model_len} or lower max_model_len"
        yield "engine.max_num_batched_tokens", f"{why} a whole text must fit in one step; {least}"
    for key, only in (("scheduler", "vllm_v1"), ("preemption", "recompute")):
        if (value := getattr(engine, key)) != only:
            yield f"engine.{key}", f"{value} is not modelled {why}; use {only}"
    if engine.long_prefill_token_threshold:
        yield "engine.long_prefill_token_threshold", f"{why} no prompt is cut; leave it out"


def _swap_problems(engine: "EngineSpec") -> Iterator[tuple[str, str]]:
    if engine.async_scheduling:
        yield "engine.async_scheduling", "swapping is modelled step by step only; leave it out"
    if engine.scheduler != "vllm_v1":
        yield "engine.preemption", f"swap is not modelled with scheduler: {engine.scheduler}; use vllm_v1"
    elif engine.kv_allocation == "contiguous":
        yield "engine.preemption", "swap would be ignored: who has a place of his own is never preempted; leave it out"


def _static_problems(engine: "EngineSpec") -> Iterator[tuple[str, str]]:
    if engine.async_scheduling:
        yield "engine.async_scheduling", "a static batch is decided step by step; leave it out"
    if engine.scheduling_policy != "fcfs":
        yield "engine.scheduling_policy", "static batches are filled first come, first served; leave it out"
    if engine.watermark:
        yield "engine.watermark", "would be ignored: a static batch has blocks for all it may need; leave it out"


def extensions(engine: "EngineSpec") -> list[str]:
    """What the engine has and vLLM has not, in words."""
    asked = {
        "static batching": engine.scheduler == "static",
        "prefill-first scheduling": engine.scheduler == "prefill_first",
        "no KV cache": engine.kv_allocation == "none",
        "contiguous KV allocation": engine.kv_allocation == "contiguous",
        "preemption by swapping": engine.preemption == "swap",
    }
    return [name for name, is_on in asked.items() if is_on]
