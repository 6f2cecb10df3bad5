"""The vision tower of Pixtral (transformers 5.24, PixtralVisionModel)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import linear, sides


def pixtral(keys: Keys) -> int:
    """Parameters: blocks with a gated MLP, no bias anywhere; positions are rotary."""
    hidden, width = keys.count("hidden_size", default=1024), keys.count("intermediate_size", default=4096)
    height, breadth = sides(keys, "patch_size", default=16)
    pixels = keys.count("num_channels", default=3) * height * breadth
    # The class projects to its hidden size, whatever head_dim says.
    block = 4 * linear(hidden, hidden, bias=False) + 3 * linear(hidden, width, bias=False) + 2 * hidden
    keys.know("num_attention_heads", "head_dim", "image_size", "vocab_size")
    return linear(pixels, hidden, bias=False) + hidden + keys.count("num_hidden_layers", default=24) * block
