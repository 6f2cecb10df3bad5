"""The vision tower of MiniMax-M3: CLIP's layers and two projectors (transformers 5.24, minimax_m3_vl)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, transformer_block

_COMPRESSION = ("image_token_compression_method", "spatial_merge_size", "temporal_patch_size")


def minimax_m3_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters; patches are merged by fours between the projectors."""
    hidden, width = keys.count("hidden_size", default=1280), keys.count("intermediate_size", default=5120)
    compression = keys.section("img_token_compression_config") or around.section("img_token_compression_config")
    merge = keys if compression is None else compression
    frames, side = merge.count("temporal_patch_size", default=2), merge.count("spatial_merge_size", default=2)
    merge.expect("image_token_compression_method", "patch_merge", why="is not known")
    keys.expect("projection_dim", hidden_size, why="is not the hidden size of the decoder")
    around.expect("multimodal_projector_bias", True, why="is not known: the projectors have a bias")
    beside = around.section("img_token_compression_config")
    if beside is not None:
        beside.know(*_COMPRESSION)
    pixels = keys.count("num_channels", default=3) * frames * keys.count("patch_size", default=14) ** 2
    middle = around.count("projector_hidden_size", default=6144)
    projector = linear(hidden, middle) + linear(middle, hidden_size)
    merger = linear(hidden_size * side * side, middle) + linear(middle, hidden_size)
    blocks = keys.count("num_hidden_layers", default=32) * transformer_block(hidden, width)
    keys.know(*_HARMLESS)
    return pixels * hidden + layer_norm(hidden) + blocks + projector + merger


_HARMLESS = (
    *("num_attention_heads", "image_size", "position_embedding_type", "rope_mode", "vocab_size"),
    *("vision_segment_max_frames", "spatial_merge_size", "temporal_patch_size"),
)
"""Positions are computed; the rest changes no size."""
