"""What vLLM does not have and a scenario may ask for all the same: other schedulers, other ways to keep KV.

What a policy needs is filled in where the scenario leaves it out, and what contradicts it is refused.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simserve.spec.engine import EngineSpec


def fill_policies(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that are others than vLLM's under the policies that the engine section names."""
    contiguous = settings.get("kv_allocation") == "contiguous"
    return {"enable_prefix_caching": False} if contiguous else {}


def policy_problems(engine: "EngineSpec") -> Iterator[tuple[str, str]]:
    """Key path of every setting that contradicts a policy, and what to do about it."""
    if engine.kv_allocation == "contiguous" and engine.enable_prefix_caching:
        why = "contiguous KV shares nothing: each request has a place of its own"
        yield "engine.enable_prefix_caching", f"{why}; leave it out or use kv_allocation: paged"


def extensions(engine: "EngineSpec") -> list[str]:
    """What the engine has and vLLM has not, in words."""
    return ["contiguous KV allocation"] if engine.kv_allocation == "contiguous" else []
