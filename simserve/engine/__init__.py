"""The engine: vLLM's scheduler and KV block pool in plain Python, and the SimPy process that gives them time.

It can also be installed compiled (`make compiled`): mypyc turns the files that pyproject.toml names into extension
modules beside their source. They decide the same to the last byte, but cannot be subclassed or patched.
"""

from importlib.util import find_spec


def is_compiled() -> bool:
    """Whether the engine of this installation is compiled."""
    spec = find_spec("simserve.engine.scheduler")
    return spec is not None and not str(spec.origin).endswith(".py")
