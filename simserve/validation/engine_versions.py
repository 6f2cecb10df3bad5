"""Serving stacks: what a version of the engine does when nobody says otherwise, and the CPU time that it takes."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from simserve.spec.strict import Strict

_FILE = Path(__file__).with_name("engine_versions.yaml")


class Stack(Strict):
    """One engine version of one source of measurements."""

    name: str
    versions: tuple[str, ...]
    """Prefixes of the version."""
    sources: tuple[str, ...] = ()
    """Parts of the source's name; empty is any source."""
    gpus: tuple[str, ...] = ()
    """Prefixes of the GPU's name; empty is any GPU."""
    unread: tuple[str, ...] = ()
    """Columns in which rows quote a launch script that the server did not read: it has the defaults of its version."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """Settings that a row takes if it does not state them."""
    moe_backend: dict[str, str] = Field(default_factory=dict)
    """GPU family -> kernels for experts in mxfp4 that the launch script asks for."""
    kv_dtype: dict[str, str] = Field(default_factory=dict)
    """GPU family -> format of the KV cache that the launch script asks for, where a row does not state it."""
    routing_skew: float = 0.0
    """How unevenly the load generator's tokens choose experts, see `CostSpec`."""
    cost: dict[str, Any] = Field(default_factory=dict)
    """Kernels of that version, with the keys of `CostSpec`."""
    largest_graph: int | None = None
    """Captured CUDA graphs go up to this many tokens, where the launch script says so."""
    graph_mode: dict[str, str] = Field(default_factory=dict)
    """GPU family -> mode of CUDA graphs that the launch script sets."""
    flags: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """GPU family -> further settings of `engine` that the launch script makes."""
    largest_fused_mb: dict[int, float] = Field(default_factory=dict)
    """Number of ranks -> `fi_allreduce_fusion_max_size_mb`, where the launch script says so."""
    host: dict[str, dict[str, float]] = Field(default_factory=dict)
    """GPU family, or `default` -> seconds, with the keys of `HostSpec`; `per_rank` is added to `per_step` under tensor
    parallelism."""
    fitted_to: str = ""

    def matches(self, version: str, source: str, gpu: str) -> bool:
        """Whether a row of that version, source and GPU ran on this stack."""
        of_source = not self.sources or any(part in source for part in self.sources)
        of_gpu = not self.gpus or gpu.lower().startswith(self.gpus)
        return of_source and of_gpu and version.startswith(self.versions)

    def flags_of(self, gpu: str, ranks: int) -> dict[str, Any]:
        """Settings of `engine` that only that GPU gets, under tensor parallelism over `ranks`."""
        flags = dict(self.flags.get(family(gpu), {}))
        if "pass_config" in flags and ranks in self.largest_fused_mb:
            limit = {"fi_allreduce_fusion_max_size_mb": self.largest_fused_mb[ranks]}
            flags["pass_config"] = {**flags["pass_config"], **limit}
        return flags

    def host_of(self, gpu: str, ranks: int) -> dict[str, float]:
        """CPU times on that GPU under tensor parallelism over `ranks`."""
        times = {**self.host.get("default", {}), **self.host.get(family(gpu), {})}
        between = times.pop("per_rank", 0.0)
        if ranks > 1 and "per_step" in times:
            times["per_step"] += between
        return times


@cache
def _document() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return loaded


@cache
def stacks() -> tuple[Stack, ...]:
    """All stacks, in the order in which they are tried."""
    return tuple(Stack.model_validate(each) for each in _document()["stacks"])


def stack_of(version: str, source: str, gpu: str = "") -> Stack:
    """The stack of a row."""
    return next(stack for stack in stacks() if stack.matches(version, source, gpu))


def samples_top_p(source: str, model: str) -> bool:
    """Whether requests of that load generator to that model of the catalogue draw tokens by top-p or top-k."""
    document = _document()
    return any(part in source for part in document["leaves_sampling"]) and model in document["samples_top_p"]


def penalizes(source: str, model: str, name: str) -> bool:
    """The same for a repetition penalty; `name`: the model's on the hub, as only its Instruct version asks for it."""
    document = _document()
    leaves = any(part in source for part in document["leaves_sampling"])
    return leaves and model in document["penalizes"] and "instruct" in name.lower()


def family(gpu: str) -> str:
    """GPU family of a profile's name, or the name itself."""
    families: Mapping[str, list[str]] = _document()["families"]
    return next((name for name, heads in families.items() if any(gpu.startswith(head) for head in heads)), gpu)


def gpu_of(name: str, source: str = "") -> Any:
    """What `cluster.gpu` of a scenario takes for a GPU of a table: a profile's name, or what differs from one, on the
    machine of that source.
    """
    for machine in _document()["machines"]:
        if machine["source"] in source and machine["gpu"]["base"] == name.lower():
            return machine["gpu"]
    return _document()["gpus"].get(name.lower(), name.lower())
