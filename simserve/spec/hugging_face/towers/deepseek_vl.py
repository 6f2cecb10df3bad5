"""The vision tower of DeepSeek-VL2 (vLLM 0.33, deepseek_vl2.py)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.clip import siglip
from simserve.spec.hugging_face.towers.sizes import linear

_SO400M = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "image_size": 384,
    "patch_size": 14,
}
"""The tower that vLLM builds whatever the file says: SigLIP so400m at 384 pixels, with its head."""


def deepseek_vl2_vision(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of the tower, of two separators, and of the projector in `projector_config`; None where the file says
    another tower than the one that vLLM builds.
    """
    named = keys.text("model_name", default="siglip_so400m_patch14_384")
    if "so400m" not in named or keys.count("width", default=1152) != _SO400M["hidden_size"]:
        return None
    keys.expect("layers", _SO400M["num_hidden_layers"], why="are not those of SigLIP so400m")
    keys.expect("patch_size", _SO400M["patch_size"], why="is not that of SigLIP so400m")
    keys.expect("image_size", _SO400M["image_size"], why="is not that of SigLIP so400m")
    keys.know("mlp_ratio", "heads", "global_pool", "ignore_head", "class_token", "num_classes", "use_checkpoint")
    keys.know("weight_init", "deterministic", "num_recomputing_layers")
    around.expect("tile_tag", "2D", why="is not known")
    projector = around.section("projector_config")
    if projector is None:
        raise around.error("projector_config", "is needed and not given: what joins tower and decoder")
    projector.expect("n_embed", hidden_size, why="is not the hidden size of the decoder")
    projector.expect("projector_type", "downsample_mlp_gelu", why="is not known")
    projector.expect("token_pooling", False, why="is not known")
    projector.know("model_type", "torch_dtype", "dtype")
    merged = projector.count("input_dim", default=1152) * projector.count("downsample_ratio", default=2) ** 2
    width = hidden_size * projector.count("mlp_ratio", default=1)
    inner = (projector.count("depth", default=2) - 2) * linear(width, width)
    whole = siglip(Keys(_SO400M, keys.model)) + linear(merged, width) + inner + linear(width, hidden_size)
    return whole + 2 * hidden_size
