"""The vision tower of Muse Glimmer (transformers 5.24, MuseGlimmerVisionModel)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, transformer_block


def muse_glimmer_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters, with the adapter behind the merging of patches and the projection to the decoder."""
    hidden, width = keys.count("hidden_size", default=1536), keys.count("intermediate_size", default=8960)
    pixels = 3 * keys.count("patch_temporal", default=2) * keys.count("patch_size", default=14) ** 2
    positions = keys.count("pos_emb_height", default=32) * keys.count("pos_emb_width", default=32)
    embedding = linear(pixels, hidden, bias=False) + positions * hidden + 2 * layer_norm(hidden)
    blocks = keys.count("num_hidden_layers", default=50) * transformer_block(hidden, width)
    merged, middle = around.count("out_hidden_size", default=6144), around.count("projector_hidden_size", default=4096)
    adapter = linear(merged, middle, bias=False) + linear(middle, middle, bias=False)
    keys.know("num_attention_heads", "layer_types", "merge_size", "max_position_embeddings")
    return embedding + blocks + adapter + linear(middle, hidden_size, bias=False)
