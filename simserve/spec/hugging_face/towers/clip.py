"""The vision tower of MiniMax-M3: CLIP's layers and two projectors (transformers 5.24, minimax_m3_vl)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear
from simserve.spec.model import TowerSpec


def clip_with_merger(whole: Keys, name: str, out: int) -> list[TowerSpec]:
    """The tower of `vision_config`, whose patches are merged by fours behind the first projector; it ends in `out`
    elements, the decoder's hidden size; none without that section.
    """
    keys = whole.section("vision_config")
    if keys is None:
        return []
    hidden, width = keys.count("hidden_size", default=1280), keys.count("intermediate_size", default=5120)
    compression = keys.section("img_token_compression_config") or whole.section("img_token_compression_config")
    merge = keys if compression is None else compression
    frames, side = merge.count("temporal_patch_size", default=2), merge.count("spatial_merge_size", default=2)
    merge.expect("image_token_compression_method", "patch_merge", why="is not known")
    keys.expect("projection_dim", out, why="is not the hidden size of the decoder")
    whole.expect("multimodal_projector_bias", True, why="is not known: the projectors have a bias")
    beside = whole.section("img_token_compression_config")
    if beside is not None:
        beside.know(*_COMPRESSION)
    pixels = keys.count("num_channels", default=3) * frames * keys.count("patch_size", default=14) ** 2
    block = 4 * linear(hidden, hidden) + linear(hidden, width) + linear(width, hidden) + 2 * layer_norm(hidden)
    middle = whole.count("projector_hidden_size", default=6144)
    projector = linear(hidden, middle) + linear(middle, out)
    merger = linear(out * side * side, middle) + linear(middle, out)
    blocks = keys.count("num_hidden_layers", default=32) * block
    keys.know(*_HARMLESS)
    parameters = pixels * hidden + layer_norm(hidden) + blocks + projector + merger
    return [TowerSpec(name=name, num_parameters=parameters)]


_COMPRESSION = ("image_token_compression_method", "spatial_merge_size", "temporal_patch_size")
_HARMLESS = (
    *("num_attention_heads", "image_size", "position_embedding_type", "rope_mode", "rope_theta", "attention_dropout"),
    *("hidden_act", "initializer_factor", "initializer_range", "layer_norm_eps", "model_type", "vocab_size"),
    *("vision_segment_max_frames", "dtype", "torch_dtype", "spatial_merge_size", "temporal_patch_size"),
)
"""Positions are computed; the rest changes no size."""
