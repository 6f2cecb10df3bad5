"""A module of a checkpoint under all the names that files call it by.

A list in a file may name the module as the checkpoint does, as its wrapper does (`language_model.` before it), or the
kernel that its matrix is fused into (`qkv_proj`); routed experts stand for each other, so one name is that of all.
"""

from functools import lru_cache
from typing import NamedTuple

_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "w13": ("w1", "w3"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "fused_wqa_wkv": ("wq_a", "wkv"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
"""Modules that kernels read at once -> those of the checkpoint that are in them (packed_modules_mapping of vLLM)."""

_ALSO = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
"""Names of an MLP's matrices in some checkpoints -> those of vLLM, under which lists name them, too."""

_ROOTS = ("model.", "language_model.model.", "model.language_model.", "language_model.", "thinker.model.", "")
"""What stands before `layers` in a decoder alone and inside the wrappers."""

_HEADS = ("lm_head", "language_model.lm_head", "model.lm_head", "model.language_model.lm_head", "thinker.lm_head")


class Module(NamedTuple):
    """`names`: all that it is called; `above`: these, and the names of what it is in; `group`: all that its routed
    experts are called together, empty where it is none of them; `is_head`: it is the output projection.
    """

    names: tuple[str, ...]
    above: frozenset[str]
    group: tuple[str, ...] = ()
    is_head: bool = False

    @property
    def is_expert(self) -> bool:
        """Whether it is a matrix of the routed experts."""
        return bool(self.group)


@lru_cache(maxsize=2**16)
def module(name: str) -> Module:
    """The module that the checkpoint calls so."""
    if name == "lm_head":
        return Module(_HEADS, frozenset(_HEADS), is_head=True)
    spelled = tuple(dict.fromkeys(other for whole in _with_roots(name) for other in _with_fused(whole)))
    groups = (one[: one.index(".experts.") + len(".experts")] for one in spelled if ".experts." in one)
    above = frozenset(part for one in spelled for part in _beginnings(one))
    return Module(spelled, above, tuple(dict.fromkeys(groups)))


def group_of(name: str) -> str:
    """Name of the group that a routed expert is in; the name itself where it is of none."""
    before, experts, _ = name.partition(".experts.")
    return f"{before}.experts" if experts else name


def _with_roots(name: str) -> list[str]:
    root, layers, rest = name.partition("layers.")
    if not layers:
        return [name]
    return [f"{each}{layers}{rest}" for each in dict.fromkeys((root, *_ROOTS))]


def _with_fused(name: str) -> list[str]:
    parent, dot, last = name.rpartition(".")
    alike = [last, _ALSO.get(last, last)]
    fused = [whole for whole, parts in _FUSED.items() if not set(alike).isdisjoint(parts)]
    return [f"{parent}{dot}{other}" for other in (*alike, *fused, *_FUSED.get(last, ()))]


def _beginnings(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
