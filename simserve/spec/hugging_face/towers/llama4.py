"""The vision tower of Llama 4 (transformers 5.24, Llama4VisionModel)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, patches, transformer_block


def llama4_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters, with the adapter behind the pixel shuffle and the projection to the decoder."""
    del around
    hidden, width = keys.count("hidden_size", default=768), keys.count("intermediate_size", default=5632)
    image, patch = keys.count("image_size", default=448), keys.count("patch_size", default=14)
    pixels = keys.count("num_channels", default=3) * patch * patch
    tokens = patches(keys, (image, image), (patch, patch)) + 1
    embedding = linear(pixels, hidden, bias=False) + hidden + tokens * hidden + 2 * layer_norm(hidden)
    blocks = keys.count("num_hidden_layers", default=34) * transformer_block(hidden, width)
    middle = keys.count("projector_output_dim", default=4096)
    adapter = linear(width, keys.count("projector_input_dim", default=4096), bias=False)
    adapter += linear(middle, middle, bias=False)
    # The projector has no bias, whatever multi_modal_projector_bias says.
    projector = linear(keys.count("vision_output_dim", default=7680), hidden_size, bias=False)
    keys.know("num_attention_heads", "multi_modal_projector_bias", "pixel_shuffle_ratio", "projector_dropout")
    keys.know("vision_feature_layer", "vision_feature_select_strategy")
    return embedding + blocks + adapter + projector
