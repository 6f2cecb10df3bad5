"""Towers of Gemma 3n and Gemma 4 (transformers 5.24, gemma3n and gemma4). Gemma 3 has SigLIP's.

Each function takes the tower's keys, those around them and the decoder's hidden size.
"""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import linear

_MOBILE_NETS = {"mobilenetv5_300m_enc": 294_126_912}
"""Parameters by `architecture` (timm 1.0.31, MobileNetV5 encoder, without its pooling: built and counted)."""

_CONFORMER = (
    *("rms_norm_eps", "gradient_clipping", "attention_chunk_size", "attention_context_left", "residual_weight"),
    *("attention_context_right", "attention_logit_cap", "attention_invalid_logits_value", "use_clipped_linears"),
    *("conf_attention_chunk_size", "conf_attention_context_left", "conf_attention_context_right"),
    *("conf_attention_logit_cap", "conf_residual_weight", "vocab_offset"),
    *("conf_reduction_factor", "sscp_conv_group_norm_eps", "sscp_conv_eps"),
)
"""What attention sees, bounds of values, frames that are left out behind the tower, where the tower's tokens begin."""


def gemma3n_vision(keys: Keys, around: Keys, hidden_size: int) -> int | None:
    """Parameters of MobileNetV5 and of its projection to the decoder; None for another network."""
    del around
    network = keys.text("architecture", default="mobilenetv5_300m_enc")
    if network not in _MOBILE_NETS:
        return None
    keys.expect("do_pooling", False, why="adds a part to the tower that is not counted")
    keys.expect("model_args", {}, why="changes the network, which is counted as published only")
    keys.know("num_classes", "label_names", "vocab_offset")
    return _MOBILE_NETS[network] + _embedder(keys, keys.count("hidden_size", default=2048), hidden_size)


def _embedder(keys: Keys, hidden: int, hidden_size: int) -> int:
    """A vocabulary of the tower's own, two norms, and a projection."""
    return keys.count("vocab_size", default=128) * hidden + 2 * hidden + linear(hidden, hidden_size, bias=False)


def gemma3n_audio(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of the conformer of Gemma 3n and of its projection to the decoder."""
    del around
    hidden = keys.count("hidden_size", default=1536)
    heads = keys.count("conf_num_attention_heads", default=8)
    layers, kernel = keys.count("conf_num_hidden_layers", default=12), keys.count("conf_conv_kernel_size", default=5)
    channels = _two(keys, "sscp_conv_channel_size", [128, 32])
    keys.expect("sscp_conv_kernel_size", [[3, 3], [3, 3]], why="is not known")
    keys.expect("sscp_conv_stride_size", [[2, 2], [2, 2]], why="is not known")
    bins = keys.count("input_feat_size", default=128)
    for _ in range(2):
        bins = (bins - 1) // 2 + 1
    keys.know(*_CONFORMER)
    # A block of Gemma 3n has the norms of Gemma 4's; its projections of attention start from the hidden size, too.
    blocks = layers * _conformer_block(keys, hidden, heads, kernel)
    return _convolutions(channels, bins, hidden) + blocks + _embedder(keys, hidden, hidden_size)


def gemma4_audio(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of the conformer of Gemma 4 and of its projections."""
    del around
    hidden, heads = keys.count("hidden_size", default=1024), keys.count("num_attention_heads", default=8)
    layers, kernel = keys.count("num_hidden_layers", default=12), keys.count("conv_kernel_size", default=5)
    channels = _two(keys, "subsampling_conv_channels", [128, 32])
    out = keys.count("output_proj_dims", default=1536)
    keys.know(*_CONFORMER)
    blocks = layers * _conformer_block(keys, hidden, heads, kernel)
    projections = linear(hidden, out) + linear(out, hidden_size, bias=False)
    # Two halvings of 128 bins; the class takes a quarter of the first channels for them.
    return _convolutions(channels, channels[0] // 4, hidden) + blocks + projections


def _two(keys: Keys, name: str, default: list[int]) -> list[int]:
    found = keys.wholes(name, least=1)
    if found is not None and len(found) != 2:
        raise keys.error(name, "expected two numbers, the channels of two convolutions")
    return found or default


def _convolutions(channels: list[int], bins: int, hidden: int) -> int:
    """Two convolutions of 3 x 3, each with a norm, and a projection of what is left of the pitch."""
    first, second = channels
    return 9 * first + first + 9 * first * second + second + linear(second * bins, hidden, bias=False)


def _conformer_block(keys: Keys, hidden: int, heads: int, kernel: int) -> int:
    """Feed-forward, attention with relative positions, a light convolution, feed-forward; nine norms and one at the
    end.
    """
    if hidden % heads:
        raise keys.error("hidden_size", f"{hidden} is no multiple of {heads} heads")
    feed_forward = 2 * linear(hidden, 4 * hidden, bias=False)
    attention = 5 * linear(hidden, hidden, bias=False) + hidden // heads
    convolution = linear(hidden, 2 * hidden, bias=False) + linear(hidden, hidden, bias=False) + hidden * kernel
    return 2 * feed_forward + attention + convolution + 9 * hidden


def gemma4_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters: rotary and learned positions, norms of queries and keys, a gated MLP, four norms a block."""
    del around
    hidden, width = keys.count("hidden_size", default=768), keys.count("intermediate_size", default=3072)
    heads, dim = keys.count("num_attention_heads", default=12), keys.count("head_dim", default=64)
    kv_heads = keys.count("num_key_value_heads", default=12)
    keys.expect("global_head_dim", dim, why="is not head_dim: all layers of this tower have one")
    keys.expect("attention_bias", False, why="is not known")
    keys.know("use_clipped_linears", "standardize", "default_output_length", "pooling_kernel_size")
    keys.know("max_position_embeddings", "image_seq_length", "video_seq_length", "rms_norm_eps")
    attention = linear(hidden, (heads + 2 * kv_heads) * dim, bias=False) + linear(heads * dim, hidden, bias=False)
    block = attention + 2 * dim + 3 * linear(hidden, width, bias=False) + 4 * hidden
    embedding = linear(3 * keys.count("patch_size", default=16) ** 2, hidden, bias=False)
    embedding += 2 * keys.count("position_embedding_size", default=10240) * hidden
    blocks = keys.count("num_hidden_layers", default=16) * block
    return embedding + blocks + linear(hidden, hidden_size, bias=False)
