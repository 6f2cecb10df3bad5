"""Towers of any kind and their projectors: LLaVA and the models built like it (transformers 5.24, the class of each).

Each function takes the tower's keys, those around them and the decoder's hidden size.
"""

from collections.abc import Callable

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.clip import clip, idefics3, siglip
from simserve.spec.hugging_face.towers.pixtral import pixtral
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear

_TOWERS: dict[str, Callable[[Keys], int]] = {
    "clip_vision_model": clip,
    "siglip_vision_model": siglip,
    "pixtral": pixtral,
    "idefics3": idefics3,
    "idefics3_vision": idefics3,
    "smolvlm_vision": idefics3,
}
_HIDDEN = {"clip_vision_model": 768, "siglip_vision_model": 768, "pixtral": 1024}
_IDEFICS3_HIDDEN = 1152


def _tower(keys: Keys, default: str) -> tuple[int, int] | None:
    """Hidden size and parameters of the tower by its `model_type`; None where nobody has counted that type."""
    kind = keys.text("model_type", default=default)
    if kind not in _TOWERS:
        return None
    return keys.count("hidden_size", default=_HIDDEN.get(kind, _IDEFICS3_HIDDEN)), _TOWERS[kind](keys)


def _feature_layers(around: Keys) -> int:
    """Layers of the tower whose outputs are read side by side. All its layers count, those behind them, too."""
    value = around.value("vision_feature_layer")
    if not isinstance(value, list):
        around.number("vision_feature_layer", default=-2)
        return 1
    if not value or not all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        raise around.error("vision_feature_layer", "expected a whole number or a list of them, one at least")
    return len(value)


def llava(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of the tower, and of two linear layers to the decoder."""
    tower = _tower(keys, "clip_vision_model")
    if tower is None:
        return None
    bias = around.flag("multimodal_projector_bias", default=True)
    projector = linear(tower[0] * _feature_layers(around), hidden_size, bias=bias)
    return tower[1] + projector + linear(hidden_size, hidden_size, bias=bias)


def llava_next(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """The same with a learned token for the end of a line."""
    found = llava(keys, around, hidden_size)
    return None if found is None else found + hidden_size


def gemma3(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of the tower, a norm without bias and one projection."""
    del around
    tower = _tower(keys, "siglip_vision_model")
    return None if tower is None else tower[1] + tower[0] + linear(tower[0], hidden_size, bias=False)


def paligemma(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of the tower and one linear layer."""
    for each in (keys, around):
        each.expect("projection_dim", hidden_size, why="is not the hidden size of the decoder")
    tower = _tower(keys, "siglip_vision_model")
    if tower is None:
        return None
    if "vision_use_head" not in keys:  # the class of PaliGemma takes a tower without it
        raise keys.error("vision_use_head", "is needed: whether the tower has a head that pools its tokens")
    return tower[1] + linear(tower[0], hidden_size)


def mistral3(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of the tower, a norm, what merges patches, and two linear layers."""
    tower = _tower(keys, "pixtral")
    if tower is None:
        return None
    hidden, merge = tower[0], around.count("spatial_merge_size", default=2)
    bias = around.flag("multimodal_projector_bias", default=False)
    merger = hidden + linear(hidden * merge * merge, hidden, bias=False)
    projector = linear(hidden * _feature_layers(around), hidden_size, bias=bias)
    return tower[1] + merger + projector + linear(hidden_size, hidden_size, bias=bias)


def cohere2_vision(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of the tower and of a gated projector behind merged patches."""
    return _gated(keys, around, hidden_size, around.count("alignment_intermediate_size", default=36864), norm=False)


def aya_vision(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """The same with a norm before the projector."""
    width = around.count("alignment_intermediate_size", default=hidden_size)
    return _gated(keys, around, hidden_size, width, norm=True)


def _gated(keys: Keys, around: Keys, hidden_size: int, width: int, *, norm: bool) -> int | None:
    tower = _tower(keys, "siglip_vision_model")
    if tower is None:
        return None
    if width % 2:
        raise around.error("alignment_intermediate_size", f"{width} has no half, which is the gate")
    merged = tower[0] * around.count("downsample_factor", default=2) ** 2
    return tower[1] + layer_norm(merged) * norm + linear(merged, width) + linear(width // 2, hidden_size)


def idefics(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of the tower of Idefics 3 or SmolVLM, and of one projection of merged patches."""
    tower = _tower(keys, "idefics3_vision")
    if tower is None:
        return None
    merged = tower[0] * around.count("scale_factor", default=2) ** 2
    return tower[1] + linear(merged, hidden_size, bias=False)
