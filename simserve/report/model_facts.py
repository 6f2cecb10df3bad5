"""What is known of a model by its shapes alone: how large it is, what it caches, and whether a run can use it."""

from typing import Any

from simserve.spec.layers.layer import LayerSpec
from simserve.spec.model import ModelSpec

Facts = dict[str, Any]


def model_facts(model: ModelSpec) -> Facts:
    """All facts, ready for JSON. Bytes are those of the whole model: before tensor parallelism.

    `kv_bytes_per_token`: in layers that keep all tokens; `windows`: layers that keep the last `window` tokens, with
    their `bytes_per_token`; `state_bytes_per_sequence`: what recurrent layers keep of a request, however long it is;
    `simulated`: true, or the reason why a run cannot use it; `layers`: kinds of layers with their numbers.
    """
    return {
        "name": model.name,
        "source": model.source,
        "num_parameters": model.num_parameters,
        "num_active_parameters": model.num_active_parameters,
        "weight_bytes": _whole(model.weight_bytes),
        "weight_dtype": model.weight_dtype,
        "kv_bytes_per_token": _whole(model.kv_bytes_per_token),
        "windows": [{key: _whole(value) for key, value in each.items()} for each in model.windows],
        "state_bytes_per_sequence": _whole(model.state_bytes_per_sequence),
        "index_cache_bytes_per_token": _whole(model.index_cache_bytes_per_token),
        "kv_dtype": model.kv_dtype,
        "max_model_len": model.max_position_embeddings,
        "simulated": model.not_simulated or True,
        "towers": {tower.name: tower.num_parameters for tower in model.towers},
        "drafting_layers": model.drafting_layers,
        "left_out": list(model.left_out),
        "warnings": list(model.warnings),
        "layers": layer_kinds(model),
    }


def layer_kinds(model: ModelSpec) -> dict[str, int]:
    """How many layers are of each kind, by their attention and their MLP, in the order in which they come."""
    found: dict[str, int] = {}
    for layer in model.layers:
        name = _name(layer)
        found[name] = found.get(name, 0) + layer.count
    return found


def _name(layer: LayerSpec) -> str:
    attention, mlp = layer.attention, layer.mlp
    parts = [] if attention is None else [attention.kind + _window(attention)]
    if mlp is not None:
        parts.append("mixture" if mlp.type == "mixture" else "dense")
    return " + ".join(parts) or "nothing"


def _window(attention: object) -> str:
    window = getattr(attention, "window", None)
    return f" {window}" if window else ""


def _whole(number: float) -> float:
    """A number without a fraction as a whole one."""
    return int(number) if number == int(number) else number
