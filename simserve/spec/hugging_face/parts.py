"""Parts that many families share: each reads its keys, and takes as arguments what a family's class does otherwise."""

from collections.abc import Callable, Sequence

from simserve.spec.hugging_face.family import Decoder, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.positions import stated_length
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import Attention, LayerSpec, Mlp
from simserve.spec.layers.mlp import DenseMlp, Mixture

GATED = ("silu", "swish", "swiglu", "gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast", "silu_and_mul")
"""Activations whose MLP has a gate in the families that have one."""
FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def num_layers(keys: Keys) -> int:
    """Layers of the decoder."""
    return keys.count("num_hidden_layers")


def grouped(
    keys: Keys,
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    null_head_dim: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: str = "none",
) -> GroupedAttention:
    """Attention of the usual keys. The arguments are the class's defaults: `kv_heads` None is as many as heads,
    `head_dim` None is hidden size over heads, and so is a null in the file where `null_head_dim` says so.

    Raises:
        ScenarioError: the hidden size is no multiple of the heads, where it has to be; heads that KV heads do not
            divide.
    """
    heads, hidden = keys.count("num_attention_heads"), keys.count("hidden_size")
    dim = keys.whole("head_dim", default=head_dim or 0, null=None if head_dim and not null_head_dim else 0)
    if not dim:
        if hidden % heads:
            raise keys.error("head_dim", f"is needed: hidden_size {hidden} is no multiple of {heads} heads")
        dim = hidden // heads
    kv = keys.count("num_key_value_heads", default=kv_heads or heads, null=heads)
    if heads % kv:
        raise keys.error("num_key_value_heads", f"{kv} does not divide num_attention_heads {heads}")
    return GroupedAttention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=dim,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,  # type: ignore[arg-type]
    )


def gated_activation(keys: Keys) -> None:
    """Read the activation of a family whose MLP has a gate.

    Raises:
        ScenarioError: an activation that its MLP is not known to have a gate with.
    """
    keys.expect(
        "hidden_act", *GATED, why="is not an activation of this family: whether the MLP has a gate is not known"
    )
    keys.expect("hidden_activation", *GATED, why="is not an activation of this family")


def dense(keys: Keys, *, gated: bool = True, bias: bool = False) -> DenseMlp:
    """The dense MLP of the usual keys."""
    if gated:
        gated_activation(keys)
    return DenseMlp(width=keys.count("intermediate_size"), gated=gated, bias=bias)


def window_pattern(
    keys: Keys, layers: int, *, period: int = 0, full_at: int = -1, names: Sequence[str] = (FULL, SLIDING)
) -> list[bool]:
    """Whether each layer has a window: by `layer_types`, else by a pattern in which one of every `period` layers, the
    one at `full_at` in its turn, looks at all tokens; a period of 0 is none with a window.
    """
    kinds = keys.words("layer_types", known=names, length=layers)
    if kinds is not None:
        return [kind != FULL for kind in kinds]
    if not period:
        return [False] * layers
    return [layer % period != full_at % period for layer in range(layers)]


def with_windows(
    attention: GroupedAttention, window: int | None, is_window: Sequence[bool], *, chunked: bool = False
) -> list[GroupedAttention]:
    """The same attention in every layer, with a window in some."""
    limited = attention.model_copy(update={"window": window, "chunked": chunked}) if window else attention
    return [limited if each else attention for each in is_window]


def check_top_k(keys: Keys, mixture: Mixture, key: str) -> Mixture:
    """The mixture, if it has as many experts as a token is routed to.

    Raises:
        ScenarioError: it has not.
    """
    if mixture.experts_per_token > mixture.num_experts + mixture.zero_experts:
        raise keys.error(key, f"{mixture.experts_per_token} is more than the {mixture.num_experts} experts")
    return mixture


def mixed_layers(
    attentions: Sequence[Attention], is_dense: Callable[[int], bool], dense_mlp: Mlp | None, mixture: Mlp | None
) -> list[LayerSpec]:
    """Layers with an attention each, dense where `is_dense` says so of their place and a mixture elsewhere."""
    return [
        LayerSpec(attention=attention, mlp=dense_mlp if is_dense(layer) else mixture)
        for layer, attention in enumerate(attentions)
    ]


def decoder(
    keys: Keys,
    layers: Sequence[LayerSpec],
    *,
    tied: bool,
    max_positions: int | None = None,
    modules: Modules | None = None,
) -> Decoder:
    """Decoder of layers, and of the keys around them; `tied` and `max_positions` are the class's defaults."""
    return Decoder(
        keys.count("hidden_size"),
        keys.count("vocab_size"),
        layers,
        keys.flag("tie_word_embeddings", default=tied),
        stated_length(keys, max_positions),
        modules=modules or Modules(),
    )
