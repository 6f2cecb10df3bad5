"""Settings that contradict a policy other than vLLM's own, and what to do about them."""

from collections.abc import Iterator

from simserve.spec.engine import EngineSpec


def policy_problems(engine: EngineSpec) -> Iterator[tuple[str, str]]:
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


def _without_kv_problems(engine: EngineSpec) -> Iterator[tuple[str, str]]:
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


def _swap_problems(engine: EngineSpec) -> Iterator[tuple[str, str]]:
    if engine.async_scheduling:
        yield "engine.async_scheduling", "swapping is modelled step by step only; leave it out"
    if engine.scheduler != "vllm_v1":
        yield "engine.preemption", f"swap is not modelled with scheduler: {engine.scheduler}; use vllm_v1"
    elif engine.kv_allocation == "contiguous":
        yield "engine.preemption", "swap would be ignored: who has a place of his own is never preempted; leave it out"


def _static_problems(engine: EngineSpec) -> Iterator[tuple[str, str]]:
    if engine.async_scheduling:
        yield "engine.async_scheduling", "a static batch is decided step by step; leave it out"
    if engine.scheduling_policy != "fcfs":
        yield "engine.scheduling_policy", "static batches are filled first come, first served; leave it out"
    if engine.watermark:
        yield "engine.watermark", "would be ignored: a static batch has blocks for all it may need; leave it out"
