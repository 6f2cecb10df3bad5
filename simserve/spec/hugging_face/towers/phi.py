"""Towers of Phi-3-vision, Phi-3.5-vision (vLLM 0.33, phi3v.py) and Phi-4-multimodal."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.clip import clip_large
from simserve.spec.hugging_face.towers.sizes import linear


def phi3_vision(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of CLIP ViT-L/14 at 336 pixels, of separators, and of the projection of four patches; None for another
    tower.
    """
    if keys.text("name", default="clip_vision_model") != "clip_vision_model":
        return None
    out = keys.count("image_dim_out", default=1024)
    keys.know("model_name", "num_img_tokens", "layer_idx", "type_feature", "num_crops")
    embedding = around.section("embd_layer")
    if embedding is None:
        raise around.error("embd_layer", "is needed and not given: how pictures are embedded")
    embedding.expect("use_hd_transform", True, why="is not known")
    embedding.expect("with_learnable_separator", True, why="is not known")
    embedding.expect("projection_cls", "mlp", why="is not known")
    embedding.know("embedding_cls", "hd_transform_order")
    return clip_large() + 2 * 4 * out + linear(4 * out, hidden_size) + linear(hidden_size, hidden_size)


def phi4_uncounted(keys: Keys, around: Keys, hidden_size: int) -> None:
    """Phi-4-multimodal's: not counted. What it says of the decoder is checked all the same."""
    del keys, hidden_size
    for name, value in (("lm_head_bias", False), ("mlp_bias", False), ("full_attn_mod", 1), ("interpolate_factor", 1)):
        around.expect(name, value, why="is not known in this model")
