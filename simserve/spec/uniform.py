"""A model written down in a few numbers: layers that are alike, the first of them dense, some with a window.

It is what a user writes under `model:` without a configuration, and what stands for `layers` there.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from simserve.spec.dtypes import DTYPES, canonical_dtype, is_dtype
from simserve.spec.quantities import shown

Fields = dict[str, Any]

_ATTENTION = {"num_heads", "num_kv_heads", "head_dim", "v_head_dim"}
_LATENT = {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"}
_MIXTURE = {
    "num_experts": "num_experts",
    "experts_per_token": "experts_per_token",
    "moe_intermediate_size": "width",
    "num_shared_experts": "num_shared_experts",
    "shared_intermediate_size": "shared_width",
    "expert_bias": "expert_bias",
}
_REST = {
    "num_layers",
    "intermediate_size",
    "num_dense_layers",
    "sliding_window",
    "num_window_layers",
    "attention_bias",
    "output_bias",
    "qk_norm",
    "weight_dtype",
    "quantized",
}
_FLAGS = {"attention_bias", "output_bias", "qk_norm", "expert_bias"}
_QUANTIZED = ("linear", "experts")
"""Which weights `weight_dtype` covers; a scenario that simserve 0.1 resolved says it."""
_NEEDED = ("num_layers", "num_heads")
_MOST_LAYERS = 10_000
KEYS = _ATTENTION | _LATENT | set(_MIXTURE) | _REST
"""Keys that stand for `layers`."""


def with_layers(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same fields with `layers` in place of `KEYS`.

    Raises:
        PydanticCustomError: `layers` beside keys that stand for it, or a key that is missing or no such value.
    """
    stated = {key: value for key, value in fields.items() if key in KEYS and value is not None}
    if "layers" in fields or not stated:
        if stated:
            raise _wrong(min(stated), "and layers say the same; state one of them")
        return fields
    for key, value in stated.items():
        _check(key, value)
    for key in (*_NEEDED, *_needed_beside(stated)):
        if key not in stated:
            raise _wrong(key, "is needed and not given")
    if stated["num_layers"] > _MOST_LAYERS:
        raise _wrong("num_layers", f"no model has more than {_MOST_LAYERS}, got {stated['num_layers']}")
    rest = {key: value for key, value in fields.items() if key not in KEYS}
    return {**rest, "layers": _layers(stated)}


def _needed_beside(stated: Fields) -> tuple[str, ...]:
    """Keys that others ask for."""
    needed: tuple[str, ...] = ("experts_per_token", "moe_intermediate_size") if stated.get("num_experts") else ()
    if not needed or stated.get("num_dense_layers"):
        needed += ("intermediate_size",)
    if stated.get("kv_lora_rank"):
        return (*needed, "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return (*needed, "head_dim")


def _check(key: str, value: object) -> None:
    if key == "weight_dtype":
        if not is_dtype(canonical_dtype(value)):
            raise _wrong(key, f"expected one of {', '.join(DTYPES)}, got {shown(value)}")
    elif key == "quantized":
        if value not in _QUANTIZED:
            raise _wrong(key, f"expected one of {', '.join(_QUANTIZED)}, got {shown(value)}")
    elif key in _FLAGS:
        if not isinstance(value, bool):
            raise _wrong(key, f"expected true or false, got {shown(value)}")
    elif isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(key, f"expected a whole number, got {shown(value)}")
    elif value < (least := int(key in _NEEDED)):
        raise _wrong(key, f"must be at least {least}, got {shown(value)}")


def _wrong(key: str, reason: str) -> PydanticCustomError:
    return PydanticCustomError("uniform", "{reason}", {"reason": reason, "key": key})


def _layers(stated: Fields) -> list[Fields]:
    experts = stated.get("num_experts", 0)
    dense = stated.get("num_dense_layers", 0) if experts else stated["num_layers"]
    expert_weights = stated.get("weight_dtype")
    weights = None if stated.get("quantized") == "experts" else expert_weights
    mlps = []
    if dense:
        width = stated.get("intermediate_size")
        mlps.append((dense, {"type": "dense", "width": width, "gate_up": weights, "down": weights}))
    if experts and stated["num_layers"] > dense:
        mlps.append((stated["num_layers"] - dense, _mixture(stated, weights, expert_weights)))
    return [row for count, mlp in mlps for row in _rows(stated, mlp, count, stated["num_layers"], weights)]


def _mixture(stated: Fields, weights: Any, expert_weights: Any) -> Fields:
    formats = dict.fromkeys(("experts_gate_up", "experts_down"), expert_weights)
    formats |= dict.fromkeys(("shared_gate_up", "shared_down"), weights)
    return {"type": "mixture"} | {name: stated[key] for key, name in _MIXTURE.items() if key in stated} | formats


def _rows(stated: Fields, mlp: Fields, count: int, layers: int, weights: Any) -> list[Fields]:
    """Layers with one MLP: those with a window and those without in turn, in the ratio of their numbers."""
    full = _attention(stated, weights)
    if stated.get("num_window_layers") and not stated.get("sliding_window"):
        raise _wrong("sliding_window", "is needed beside num_window_layers and not given")
    windows = stated.get("num_window_layers", layers if stated.get("sliding_window") else 0)
    if not windows:
        return [{"attention": full, "mlp": mlp, "count": count}]
    window = {**full, "window": stated["sliding_window"]}
    is_window = [(layer * windows) // layers < ((layer + 1) * windows) // layers for layer in reversed(range(layers))]
    return [{"attention": window if each else full, "mlp": mlp, "count": 1} for each in is_window[:count]]


def _attention(stated: Fields, weights: Any) -> Fields:
    if stated.get("kv_lora_rank"):
        keys = {"num_heads", "v_head_dim"} | _LATENT
        formats = dict.fromkeys(("latent", "queries", "expand", "out"), weights)
        return {"type": "latent"} | {key: stated[key] for key in keys if key in stated} | formats
    found: Fields = {"type": "grouped"} | {key: stated[key] for key in _ATTENTION if key in stated}
    found.setdefault("num_kv_heads", stated["num_heads"])
    bias = {"qkv_bias": stated.get("attention_bias", False), "output_bias": stated.get("output_bias", False)}
    norm = {"qk_norm": "head" if stated.get("qk_norm") else "none"}
    return found | bias | norm | {"qkv": weights, "out": weights}
