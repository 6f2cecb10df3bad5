"""Decoders that are Llama but for biases, norms, sizes of heads or a window: Phi 3 and 4, SmolLM 3, Ministral,
Seed-OSS, Granite, GLM 4, InternLM, Baichuan, StableLM, HyperCLOVA X, CWM.

Keys and defaults: transformers 5.24, phi3, smollm3, ministral, ministral3, seed_oss, granite, glm, glm4, stablelm,
internlm3, hyperclovax and cwm;
InternLM 2 and Baichuan: vLLM 0.33, models/internlm2.py, and the configurations that their files name.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import disagree
from simserve.spec.hugging_face.parts import FULL, SLIDING, decoder, dense, grouped, num_layers, with_windows
from simserve.spec.hugging_face.positions import long_rope_warnings, stated_length
from simserve.spec.hugging_face.windows import windowed
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec


def _no_bias(keys: Keys, *names: str) -> None:
    for name in names:
        keys.expect(name, False, why="is not what the class does: these projections have no biases")


def _both_biases(keys: Keys, *, kv_heads: int | None = None) -> GroupedAttention:
    bias = keys.flag("attention_bias", default=False)
    return grouped(keys, kv_heads=kv_heads, qkv_bias=bias, output_bias=bias)


def _alike(keys: Keys, attention: GroupedAttention, length: int, *, mlp_bias: bool = False, norms: int = 2) -> Decoder:
    layer = LayerSpec(attention=attention, mlp=dense(keys, bias=mlp_bias), norms=norms)
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=length)


def _phi3(keys: Keys) -> Decoder:
    """Its window is that of all layers; one as long as the sequence, which files state, is none."""
    _no_bias(keys, "attention_bias", "mlp_bias")
    layers, length = num_layers(keys), stated_length(keys, 4096)
    window = keys.whole("sliding_window", default=0, null=0)
    rows = with_windows(grouped(keys), window if window < length else None, [True] * layers)
    mlp = dense(keys)
    found = decoder(keys, [LayerSpec(attention=each, mlp=mlp) for each in rows], tied=False, max_positions=length)
    return found._replace(warnings=long_rope_warnings(keys))


def _smollm3(keys: Keys) -> Decoder:
    """Some layers have no positions, and those alone may have a window."""
    layers, every = num_layers(keys), keys.count("no_rope_layer_interval", default=4)
    with_positions = keys.wholes("no_rope_layers", length=layers)
    if with_positions is None:
        with_positions = [(layer + 1) % every for layer in range(layers)]
    uses = keys.flag("use_sliding_window", default=False)
    made = [uses and not mark and "sliding_window" in keys for mark in with_positions]
    kinds = keys.words("layer_types", known=(FULL, SLIDING), length=layers)
    marks = made if kinds is None else [kind == SLIDING for kind in kinds]
    if marks != made and "use_sliding_window" in keys:
        raise disagree(keys, "layer_types", "use_sliding_window and no_rope_layers")
    rows = windowed(keys, _both_biases(keys, kv_heads=4), marks, None)
    mlp = dense(keys, bias=keys.flag("mlp_bias", default=False))
    return decoder(keys, [LayerSpec(attention=each, mlp=mlp) for each in rows], tied=True, max_positions=32768)


def _ministral3(keys: Keys) -> Decoder:
    _no_bias(keys, "attention_bias")
    keys.words("layer_types", known=(FULL,))
    window = keys.whole("sliding_window", default=0, null=0)
    attention = grouped(keys, kv_heads=8, head_dim=128)
    return _alike(keys, attention.model_copy(update={"window": window or None}), 262144)


def _ministral(keys: Keys) -> Decoder:
    _no_bias(keys, "attention_bias")
    layers = num_layers(keys)
    kinds = keys.words("layer_types", known=(FULL, SLIDING), length=layers)
    marks = [True] * layers if kinds is None else [kind == SLIDING for kind in kinds]
    mlp = dense(keys)
    rows = [LayerSpec(attention=each, mlp=mlp) for each in windowed(keys, grouped(keys, kv_heads=8), marks, 4096)]
    return decoder(keys, rows, tied=False, max_positions=4096 * 32)


def _seed_oss(keys: Keys) -> Decoder:
    attention = grouped(
        keys,
        kv_heads=8,
        head_dim=128,
        null_head_dim=True,
        qkv_bias=keys.flag("attention_bias", default=True),
        output_bias=keys.flag("attention_out_bias", default=False),
    )
    return _alike(keys, attention, 524288, mlp_bias=keys.flag("mlp_bias", default=False))


def _granite(keys: Keys) -> Decoder:
    return _alike(keys, _both_biases(keys), 2048, mlp_bias=keys.flag("mlp_bias", default=False))


def _of_glm(keys: Keys) -> GroupedAttention:
    return grouped(keys, kv_heads=2, head_dim=128, qkv_bias=keys.flag("attention_bias", default=True))


def _glm(keys: Keys) -> Decoder:
    return _alike(keys, _of_glm(keys), 131072)


def _glm4(keys: Keys) -> Decoder:
    return _alike(keys, _of_glm(keys), 131072, norms=4)


def _stablelm(keys: Keys) -> Decoder:
    """Norms have biases; with blocks side by side there is one for both."""
    _no_bias(keys, "attention_bias")
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    keys.expect("head_dim", hidden // heads, why=f"is not what the class does: {hidden} over {heads} heads")
    norm = "all" if keys.flag("qk_layernorm", default=False) else "none"
    attention = grouped(keys, kv_heads=32, qkv_bias=keys.flag("use_qkv_bias", default=False), qk_norm=norm)
    norms = 2 if keys.flag("use_parallel_residual", default=False) else 4
    found = _alike(keys, attention, 4096, norms=norms)
    return found._replace(extra_parameters={"bias of the last norm": found.hidden_size})


def _internlm2(keys: Keys) -> Decoder:
    bias = keys.flag("bias", default=True)
    return _alike(keys, grouped(keys, qkv_bias=bias, output_bias=bias), 2048)._replace(modules=_INTERNLM2)


def _baichuan(keys: Keys) -> Decoder:
    return _alike(keys, grouped(keys), 4096)._replace(modules=_BAICHUAN)


def _internlm3(keys: Keys) -> Decoder:
    """The class is Llama's, with other names for its biases."""
    bias = keys.flag("attention_bias", "qkv_bias", default=False)
    attention = grouped(keys, kv_heads=2, head_dim=128, null_head_dim=True, qkv_bias=bias, output_bias=bias)
    return _alike(keys, attention, 32768, mlp_bias=keys.flag("mlp_bias", "bias", default=False))


def _hyperclovax(keys: Keys) -> Decoder:
    norms = 4 if keys.flag("use_post_norm", default=True) else 2
    return _alike(keys, _both_biases(keys), 2048, mlp_bias=keys.flag("mlp_bias", default=False), norms=norms)


def _cwm(keys: Keys) -> Decoder:
    """A full layer, then three with a window."""
    layers = num_layers(keys)
    kinds = keys.words("layer_types", known=(FULL, SLIDING), length=layers)
    marks = [layer % 4 != 0 for layer in range(layers)] if kinds is None else [kind == SLIDING for kind in kinds]
    rows = windowed(keys, grouped(keys, kv_heads=8, head_dim=128, null_head_dim=True), marks, 8192)
    mlp = dense(keys, bias=keys.flag("mlp_bias", default=False))
    keys.expect("attention_bias", False, why="is not what the class does: its attention has no biases")
    return decoder(keys, [LayerSpec(attention=each, mlp=mlp) for each in rows], tied=False, max_positions=131072)


_INTERNLM2 = Modules(
    attention="attention",
    mlp="feed_forward",
    renamed={
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "wqkv"),
        "o_proj": "wo",
        "gate_proj": "w1",
        "up_proj": "w3",
        "down_proj": "w2",
    },
)
_BAICHUAN = Modules(renamed=dict.fromkeys(("q_proj", "k_proj", "v_proj"), "W_pack"))

FAMILIES = (
    Family("phi3", ("phi3",), ("Phi3ForCausalLM",), _phi3),
    Family("smollm3", ("smollm3",), ("SmolLM3ForCausalLM",), _smollm3, ("max_window_layers",)),
    Family("ministral3", ("ministral3",), ("Ministral3ForCausalLM",), _ministral3),
    Family("ministral", ("ministral",), ("MinistralForCausalLM",), _ministral),
    Family("seed_oss", ("seed_oss",), ("SeedOssForCausalLM",), _seed_oss),
    Family("granite", ("granite",), ("GraniteForCausalLM",), _granite),
    Family("glm", ("glm",), ("GlmForCausalLM",), _glm),
    Family("glm4", ("glm4",), ("Glm4ForCausalLM",), _glm4),
    Family("stablelm", ("stablelm", "stablelm_epoch"), ("StableLmForCausalLM", "StableLMEpochForCausalLM"), _stablelm),
    Family("internlm2", ("internlm2",), ("InternLM2ForCausalLM",), _internlm2),
    Family("internlm3", ("internlm3",), ("InternLM3ForCausalLM",), _internlm3),
    Family("hyperclovax", ("hyperclovax",), ("HyperCLOVAXForCausalLM",), _hyperclovax),
    Family("cwm", ("cwm",), ("CwmForCausalLM",), _cwm),
    Family("baichuan", ("baichuan",), ("BaichuanForCausalLM", "BaiChuanForCausalLM"), _baichuan, ("z_loss_weight",)),
)
