"""Vision towers of Step 3 and of Step 3.5 and 3.7 (vLLM 0.33, step3_vl.py, step_vl.py and step3p7.py; transformers
5.24, step3p7).
"""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, patches, transformer_block

_WINDOW = 9
"""Elements of a convolution's 3 x 3 window."""


def step3_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Step 3's, with two convolutions that thin out patches, and the projector."""
    hidden, width = keys.count("hidden_size", default=1792), keys.count("intermediate_size", default=3072)
    image, patch = keys.count("image_size", default=728), keys.count("patch_size", default=14)
    pixels = keys.count("num_channels", default=3) * patch * patch
    tokens = patches(keys, (image, image), (patch, patch)) + 1
    blocks = keys.count("num_hidden_layers", default=63) * transformer_block(hidden, width)
    out = keys.count("output_hidden_size", default=4096)
    thinned = linear(4 * hidden, out) + linear(_WINDOW * out, 2 * out)
    projector = linear(2 * out, hidden_size, bias=around.flag("projector_bias", default=True))
    around.know("understand_projector_stride")
    keys.know("num_attention_heads", "enable_patch")
    return linear(pixels, hidden) + hidden + tokens * hidden + blocks + thinned + projector


def step3p7_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Step 3.7's, under the names of its published files or those of transformers."""
    hidden, layers = (
        keys.count("width", "hidden_size", default=1536),
        keys.count("layers", "num_hidden_layers", default=47),
    )
    width = int(hidden * keys.factor("mlp_ratio", default=8960 / 1536))
    keys.expect("intermediate_size", width, why="is not what the class makes of mlp_ratio")
    image, patch = keys.count("image_size", default=728), keys.count("patch_size", default=14)
    positions = patches(keys, (image, image), (patch, patch))
    keys.expect("max_position_embeddings", positions, why="is not the number of patches")
    keys.expect("output_dim", hidden, why="is not known")
    keys.expect("use_rope2d", True, why="is not known")
    keys.expect("use_abs_posemb", True, why="is not known")
    keys.expect("use_cls_token", False, why="is not known")
    keys.expect("use_ln_pre", True, why="is not known")
    keys.expect("use_ln_post", False, why="is not known")
    keys.number("ls_init_value", "layer_scale_init_value", default=0.1)
    keys.know("heads", "num_attention_heads", "pool_type")
    block = transformer_block(hidden, width) + 2 * hidden
    pixels = keys.count("num_channels", default=3) * patch * patch
    embedding = linear(pixels, hidden, bias=False) + positions * hidden + layer_norm(hidden)
    thinned = linear(_WINDOW * hidden, 2 * hidden) + linear(_WINDOW * 2 * hidden, 4 * hidden)
    projector = linear(4 * hidden, hidden_size, bias=around.flag("projector_bias", default=False))
    around.know("understand_projector_stride")
    return embedding + layers * block + thinned + projector
