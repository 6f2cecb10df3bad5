"""The vision tower of Kimi, MoonViT, and its projector (transformers 5.24, kimi_k25; vLLM 0.33, kimi_vl.py, kimi_k25.py
and kimi_k25_vit.py).
"""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear

_MERGER, _MERGER_2 = "patchmerger", "patchmergerv2"


def moonvit(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters. Kimi-VL and transformers name its sizes as other towers do, Kimi K2.5 and K3 with `vt_` before."""
    hidden = keys.count("vt_hidden_size", "hidden_size", default=1152)
    width = keys.count("vt_intermediate_size", "intermediate_size", default=4304)
    keys.expect("text_hidden_size", hidden_size, why="is not the hidden size of the decoder")
    keys.expect("mm_hidden_size", hidden, why="is not the hidden size of the tower")
    around.expect("projection_hidden_size", hidden, why="is not the hidden size of the tower")
    keys.expect("mlp_type", "mlp2", why="is not known")
    norm = hidden * (1 if keys.choice("norm_type", ("layernorm", "rmsnorm"), "layernorm") == "rmsnorm" else 2)
    attention_bias = keys.flag("attn_bias", default=True)
    mlp_bias = keys.flag("linear_bias", default=True)
    qkv = keys.count("qkv_hidden_size", default=hidden, null=hidden)
    block = linear(hidden, 3 * qkv, bias=attention_bias) + linear(qkv, hidden, bias=attention_bias)
    block += linear(hidden, width, bias=mlp_bias) + linear(width, hidden, bias=mlp_bias) + 2 * norm
    pixels = 3 * keys.count("patch_size", default=14) ** 2
    positions = keys.count("init_pos_emb_height", "pos_emb_height", default=64)
    positions *= keys.count("init_pos_emb_width", "pos_emb_width", default=64)
    embedding = linear(pixels, hidden, bias=keys.flag("patch_embed_proj_bias", default=True)) + positions * hidden
    rows, columns = _merged(keys)
    merged = rows * columns * hidden
    second = keys.choice("mm_projector_type", (_MERGER, _MERGER_2), _MERGER) == _MERGER_2
    projector = linear(merged, merged, bias=not second) + linear(merged, hidden_size, bias=not second)
    projector += hidden_size if second else layer_norm(hidden)
    keys.know(*_HARMLESS)
    blocks = keys.count("vt_num_hidden_layers", "num_hidden_layers", default=27) * block
    return embedding + blocks + norm + projector


def _merged(keys: Keys) -> list[int]:
    found = keys.wholes("merge_kernel_size", least=1) or [2, 2]
    if len(found) != 2:
        raise keys.error("merge_kernel_size", "expected two numbers, rows and columns of patches")
    return found


_HARMLESS = (
    *("init_pos_emb_time", "pos_emb_time", "pos_emb_type", "pos_emb_interpolation_mode", "video_attn_type"),
    *("vt_num_attention_heads", "num_attention_heads", "merge_type", "activation_func", "projector_hidden_act"),
    *("projector_ln_eps",),
)
"""Positions in time are computed; heads, kinds of attention and activations change no size."""
