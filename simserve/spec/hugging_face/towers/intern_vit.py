"""The vision tower of InternVL: as its published files name it (vLLM 0.33, intern_vit.py and internvl.py), and as
transformers does (5.24, internvl).
"""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, patches, sides, transformer_block


def _shuffled(around: Keys, hidden: int) -> int:
    """Elements of a token behind the pixel shuffle, which takes so many from each side of the image."""
    ratio = around.factor("downsample_ratio", default=0.5)
    if ratio > 1:
        raise around.error("downsample_ratio", f"expected a share of the image's side, got {ratio:g}")
    return hidden * int(1 / ratio) ** 2


def _tower(keys: Keys, defaults: dict[str, int], *, qkv_bias: bool, qk_norm: bool, norm_type: str) -> tuple[int, int]:
    """Hidden size, and the parameters common to both: a token for the class, learned positions, blocks with scales of
    their outputs.
    """
    hidden = keys.count("hidden_size", default=defaults["hidden_size"])
    width = keys.count("intermediate_size", default=defaults["intermediate_size"])
    image = sides(keys, "image_size", default=defaults["image_size"])
    patch = sides(keys, "patch_size", default=14)
    pixels = keys.count("num_channels", default=3) * patch[0] * patch[1]
    block = transformer_block(hidden, width, qkv_bias=qkv_bias) + 2 * hidden
    if keys.choice("norm_type", ("rms_norm", "layer_norm"), norm_type) == "rms_norm":
        block -= 2 * hidden
    if qk_norm:
        block += 2 * hidden
    positions = patches(keys, image, patch) + 1
    keys.know("num_attention_heads")
    blocks = keys.count("num_hidden_layers", default=defaults["num_hidden_layers"]) * block
    return hidden, linear(pixels, hidden) + (positions + 1) * hidden + blocks


def _projector(around: Keys, hidden: int, hidden_size: int) -> int:
    """A norm and two linear layers to the decoder."""
    merged = _shuffled(around, hidden)
    return layer_norm(merged) + linear(merged, hidden_size) + linear(hidden_size, hidden_size)


_6B = {"hidden_size": 3200, "intermediate_size": 12800, "num_hidden_layers": 48, "image_size": 224}
_300M = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 448}


def intern_vit(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of a tower of the published names."""
    bias, qk_norm = keys.flag("qkv_bias", default=False), keys.flag("qk_normalization", default=True)
    hidden, tower = _tower(keys, _6B, qkv_bias=bias, qk_norm=qk_norm, norm_type="rms_norm")
    keys.expect("use_moe", False, why="has experts in the tower, which are not counted")
    keys.know(*_HARMLESS)
    around.expect("select_layer", -1, why="leaves layers of the tower out, which is not modelled")
    around.expect("use_backbone_lora", 0, why="adds matrices to the tower that are not counted")
    around.expect("use_llm_lora", 0, why="adds matrices to the decoder that are not counted")
    return tower + _projector(around, hidden, hidden_size)


def internvl_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of a tower of the names of transformers."""
    keys.expect("use_mask_token", False, why="adds a token that is not counted")
    keys.expect("use_absolute_position_embeddings", True, why="is not known")
    bias, qk_norm = keys.flag("attention_bias", default=False), keys.flag("use_qk_norm", default=False)
    hidden, tower = _tower(keys, _300M, qkv_bias=bias, qk_norm=qk_norm, norm_type="layer_norm")
    if not keys.flag("use_mean_pooling", default=True):
        tower += layer_norm(hidden)
    keys.know("layer_scale_init_value")
    return tower + _projector(around, hidden, hidden_size)


_HARMLESS = (
    *("drop_path_rate", "use_fa3", "capacity_factor", "eval_capacity_factor", "laux_allreduce", "moe_coeff_ratio"),
    *("moe_intermediate_size", "moe_output_scale", "noisy_gate_policy", "num_experts", "num_routed_experts"),
    *("num_shared_experts", "shared_expert_intermediate_size", "use_residual", "use_rts", "use_weighted_residual"),
)
"""How it was trained; experts, of which it has none unless `use_moe` says so."""
