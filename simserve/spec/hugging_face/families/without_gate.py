"""Decoders of the usual keys whose MLP has no gate: StarCoder 2, Phi 1 and 2, Nemotron 4 and Minitron, Apertus, Arcee,
GPT-NeoX.

Keys and defaults: transformers 5.24, starcoder2, phi, nemotron, apertus, arcee and gpt_neox.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import decoder, dense, grouped, num_layers
from simserve.spec.hugging_face.windows import windowed
from simserve.spec.layers.layer import LayerSpec


def _activation(keys: Keys, *known: str) -> None:
    keys.expect("hidden_act", *known, why="is not an activation that this family is known to have without a gate")


def _with_biased_norm(found: Decoder) -> Decoder:
    return found._replace(extra_parameters=found.extra_parameters | {"bias of the last norm": found.hidden_size})


def _starcoder2(keys: Keys) -> Decoder:
    _activation(keys, "gelu_pytorch_tanh", "gelu", "gelu_new")
    keys.expect("mlp_type", "default", why="is an MLP that this family is not known to have")
    keys.expect("norm_type", "layer_norm", why="is a norm that this family is not known to have")
    layers, bias = num_layers(keys), keys.flag("use_bias", default=True)
    attention = grouped(keys, kv_heads=2, qkv_bias=bias, output_bias=bias)
    has_window = keys.is_null("sliding_window") or "sliding_window" in keys
    rows = windowed(keys, attention, [has_window] * layers, None)
    mlp = dense(keys, gated=False, bias=bias)
    found = decoder(
        keys,
        [LayerSpec(attention=each, mlp=mlp, norms=4) for each in rows],
        tied=True,
        max_positions=4096,
        modules=Modules(renamed={"up_proj": "c_fc", "down_proj": "c_proj"}),
    )
    return _with_biased_norm(found)


def _phi(keys: Keys) -> Decoder:
    """Attention and MLP stand side by side behind one norm; norms, projections and head have biases."""
    _activation(keys, "gelu_new", "gelu", "gelu_fast", "gelu_pytorch_tanh")
    has_norms = keys.flag("qk_layernorm", default=False)
    attention = grouped(keys, qkv_bias=True, output_bias=True, qk_norm="head" if has_norms else "none")
    layer = LayerSpec(
        attention=attention,
        mlp=dense(keys, gated=False, bias=True),
        norms=2,
        extra_parameters=2 * attention.head_dim if has_norms else 0,
    )
    found = decoder(
        keys,
        [layer] * num_layers(keys),
        tied=False,
        max_positions=2048,
        modules=Modules(renamed={"o_proj": "dense", "up_proj": "fc1", "down_proj": "fc2"}),
    )
    biases = {"bias of the last norm": found.hidden_size, "bias of lm_head": found.vocab_size}
    return found._replace(extra_parameters=biases)


def _nemotron(keys: Keys) -> Decoder:
    _activation(keys, "relu2")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias)
    mlp = dense(keys, gated=False, bias=keys.flag("mlp_bias", default=False))
    layer = LayerSpec(attention=attention, mlp=mlp, norms=4)
    return _with_biased_norm(decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=4096))


def _apertus(keys: Keys) -> Decoder:
    """Its activation, xIELU, has two parameters of its own in each layer."""
    _activation(keys, "xielu")
    keys.expect("qk_norm", True, why="is not what the class does: queries and keys have norms")
    keys.expect("post_norm", False, why="is not what the class does: norms come before the blocks")
    keys.expect("mlp_bias", False, why="is not what the class does: its MLP has no biases")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias, qk_norm="head")
    layer = LayerSpec(attention=attention, mlp=dense(keys, gated=False), extra_parameters=2)
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=65536)


def _arcee(keys: Keys) -> Decoder:
    _activation(keys, "relu2")
    bias = keys.flag("attention_bias", default=False)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias)
    layer = LayerSpec(attention=attention, mlp=dense(keys, gated=False, bias=keys.flag("mlp_bias", default=False)))
    return decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=4096)


def _gpt_neox(keys: Keys) -> Decoder:
    """Pythia and others after GPT-NeoX-20B: fused projections, attention to all heads' keys."""
    _activation(keys, "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu")
    heads, bias = keys.count("num_attention_heads"), keys.flag("attention_bias", default=True)
    keys.expect("num_key_value_heads", heads, why="is not what the class does: keys have as many heads as queries")
    keys.flag("use_parallel_residual", default=True)
    attention = grouped(keys, qkv_bias=bias, output_bias=bias)
    keys.expect("head_dim", keys.count("hidden_size") // heads, why="is not hidden_size over heads, which it is here")
    layer = LayerSpec(attention=attention, mlp=dense(keys, gated=False, bias=True), norms=4)
    modules = Modules(
        "gpt_neox.layers",
        "attention",
        renamed={
            **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "query_key_value"),
            **{"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"},
        },
    )
    found = decoder(keys, [layer] * num_layers(keys), tied=False, max_positions=2048, modules=modules)
    return _with_biased_norm(found)


FAMILIES = (
    Family("gpt_neox", ("gpt_neox",), ("GPTNeoXForCausalLM",), _gpt_neox),
    Family(
        "starcoder2",
        ("starcoder2",),
        ("Starcoder2ForCausalLM",),
        _starcoder2,
        ("residual_dropout", "embedding_dropout"),
    ),
    Family("phi", ("phi",), ("PhiForCausalLM",), _phi),
    Family("nemotron", ("nemotron",), ("NemotronForCausalLM",), _nemotron),
    Family("apertus", ("apertus",), ("ApertusForCausalLM",), _apertus),
    Family("arcee", ("arcee",), ("ArceeForCausalLM",), _arcee),
)
