"""The vision tower of GLM-4.1V, GLM-4.5V and GLM-4.6V (transformers 5.24, glm4v and glm4v_moe)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, patches


def glm4v_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters. `intermediate_size` is the width of the merger, blocks are as wide as the decoder."""
    del around
    keys.expect("out_hidden_size", hidden_size, why="is not the hidden size of the decoder")
    hidden, out = keys.count("hidden_size", default=1536), keys.count("out_hidden_size", default=4096)
    image, patch = keys.count("image_size", default=336), keys.count("patch_size", default=14)
    pixels = keys.count("in_channels", default=3) * keys.count("temporal_patch_size", default=2) * patch * patch
    positions = patches(keys, (image, image), (patch, patch))
    bias = keys.flag("attention_bias", default=False)
    block = linear(hidden, 3 * hidden, bias=bias) + linear(hidden, hidden, bias=False)
    block += 3 * linear(hidden, out, bias=False) + 2 * hidden
    side = keys.count("spatial_merge_size", default=2)
    merger = linear(out, out, bias=False) + layer_norm(out)
    merger += 3 * linear(out, keys.count("intermediate_size", default=13696), bias=False)
    keys.know("num_heads", "rms_norm_eps", "attention_dropout")
    embedding = linear(pixels, hidden) + positions * hidden
    blocks = keys.count("depth", default=24) * block
    return embedding + blocks + 2 * hidden + linear(hidden * side * side, out) + merger
