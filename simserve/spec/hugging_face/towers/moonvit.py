"""The vision tower of Kimi: MoonViT and its projector (vLLM 0.33, model_executor/models/kimi_k25_vit.py)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear
from simserve.spec.model import TowerSpec

_MERGER, _MERGER_2 = "patchmerger", "patchmergerv2"


def moonvit(whole: Keys, name: str, out: int) -> list[TowerSpec]:
    """The tower of `vision_config`, which ends in `out` elements, the decoder's hidden size; none without that section."""
    keys = whole.section("vision_config")
    if keys is None:
        return []
    hidden, width = keys.count("vt_hidden_size", default=1152), keys.count("vt_intermediate_size", default=4304)
    keys.expect("text_hidden_size", out, why="is not the hidden size of the decoder")
    keys.expect("mm_hidden_size", hidden, why="is not vt_hidden_size")
    keys.expect("mlp_type", "mlp2", why="is not known")
    norm = hidden * (1 if keys.choice("norm_type", ("layernorm", "rmsnorm"), "layernorm") == "rmsnorm" else 2)
    attention_bias = keys.flag("attn_bias", default=True)
    mlp_bias = keys.flag("linear_bias", default=True)
    qkv = keys.count("qkv_hidden_size", default=hidden, null=hidden)
    block = linear(hidden, 3 * qkv, bias=attention_bias) + linear(qkv, hidden, bias=attention_bias)
    block += linear(hidden, width, bias=mlp_bias) + linear(width, hidden, bias=mlp_bias) + 2 * norm
    pixels = 3 * keys.count("patch_size", default=14) ** 2
    positions = keys.count("init_pos_emb_height", default=64) * keys.count("init_pos_emb_width", default=64)
    embedding = linear(pixels, hidden, bias=keys.flag("patch_embed_proj_bias", default=True)) + positions * hidden
    rows, columns = keys.wholes("merge_kernel_size", length=2) or (2, 2)
    merged = rows * columns * hidden
    second = keys.choice("mm_projector_type", (_MERGER, _MERGER_2), _MERGER) == _MERGER_2
    projector = linear(merged, merged, bias=not second) + linear(merged, out, bias=not second)
    projector += out if second else layer_norm(hidden)
    keys.know(*_HARMLESS)
    blocks = keys.count("vt_num_hidden_layers", default=27) * block
    return [TowerSpec(name=name, num_parameters=embedding + blocks + norm + projector)]


_HARMLESS = (
    *("init_pos_emb_time", "pos_emb_type", "pos_emb_interpolation_mode", "vt_num_attention_heads", "video_attn_type"),
    *("merge_type", "activation_func", "projector_hidden_act", "projector_ln_eps", "model_type"),
)
"""Positions in time are computed; heads, kinds of attention and activations change no size."""
