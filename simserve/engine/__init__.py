"""The engine: vLLM's scheduler and KV block pool in plain Python, and the SimPy processes that give them time.

A scheduler decides a plan, a cost says how long it takes, the replica lives through it, the log keeps it. Who is new
here reads `request_wise`, the policy spelled out request by request over its `ledger`, and beside it the oracle of the
tests, which states the same rules with nothing clever at all. `policies/vllm_v1` decides the same over sums
(`summed_ledger`, `decoding`), which is what makes it fast. `pace` is how time passes, `gpu` what a step is made of.

It can also be installed compiled (`make compiled`): mypyc turns the files that pyproject.toml names into extension
modules beside their source. They decide the same to the last byte, but cannot be subclassed or patched.
"""

from importlib.util import find_spec


def is_compiled() -> bool:
    """Whether the engine of this installation is compiled."""
    spec = find_spec("simserve.engine.scheduler")
    return spec is not None and not str(spec.origin).endswith(".py")
