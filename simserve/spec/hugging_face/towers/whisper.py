"""Audio towers after Whisper's encoder: Qwen2-Audio, Qwen2.5-Omni, Qwen3-Omni, Voxtral (transformers 5.24, each class).

Each function takes the tower's keys, those around them and the decoder's hidden size.
"""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear

_KERNEL = 3
_HARMLESS = (
    *("encoder_attention_heads", "num_attention_heads", "encoder_layerdrop", "layerdrop", "scale_embedding"),
    *("n_window", "n_window_infer", "conv_chunksize", "vocab_size", "num_hidden_layers"),
)
"""Heads share the hidden size; windows and chunks say how sound is cut up; the class counts `encoder_layers`."""


def _layers(keys: Keys, *, key_bias: bool) -> tuple[int, int]:
    """Hidden size, and parameters of all blocks."""
    hidden = keys.count("d_model", "hidden_size", default=1280)
    width = keys.count("encoder_ffn_dim", "intermediate_size", default=5120)
    layers = keys.count("encoder_layers", "num_hidden_layers", default=32)
    keys.know(*_HARMLESS)
    block = 3 * linear(hidden, hidden) + linear(hidden, hidden, bias=key_bias)
    block += linear(hidden, width) + linear(width, hidden) + 2 * layer_norm(hidden)
    return hidden, layers * block


def _whisper(keys: Keys) -> tuple[int, int]:
    """Hidden size, and parameters of two convolutions, all blocks and the last norm."""
    hidden, blocks = _layers(keys, key_bias=False)
    first = linear(keys.count("num_mel_bins", default=128) * _KERNEL, hidden)
    return hidden, first + linear(hidden * _KERNEL, hidden) + blocks + layer_norm(hidden)


def _positions(keys: Keys) -> int:
    return keys.count("max_source_positions", default=1500)


def qwen2_audio(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Qwen2-Audio's: learned positions, one linear layer to the decoder."""
    del around
    hidden, tower = _whisper(keys)
    return tower + _positions(keys) * hidden + linear(hidden, hidden_size)


def voxtral(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Voxtral's: learned positions, four frames to a token, two linear layers without bias."""
    del around
    hidden, tower = _whisper(keys)
    width = keys.count("encoder_ffn_dim", "intermediate_size", default=5120)
    projector = linear(width, hidden_size, bias=False) + linear(hidden_size, hidden_size, bias=False)
    return tower + _positions(keys) * hidden + projector


def qwen2_5_omni_audio(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Qwen2.5-Omni's: computed positions, learned tokens for beginning and end."""
    del around
    hidden, tower = _whisper(keys)
    keys.expect("output_dim", hidden_size, why="is not the hidden size of the decoder")
    _positions(keys)
    out = keys.count("output_dim", default=3584)
    return tower + 2 * out + linear(hidden, out)


def qwen3_omni_audio(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Qwen3-Omni's: three convolutions that halve time and pitch, computed positions."""
    del around
    hidden, blocks = _layers(keys, key_bias=True)
    keys.expect("output_dim", hidden_size, why="is not the hidden size of the decoder")
    _positions(keys)
    channels, out = keys.count("downsample_hidden_size", default=480), keys.count("output_dim", default=3584)
    bins = keys.count("num_mel_bins", default=128)
    for _ in range(3):
        bins = (bins + 1) // 2
    window = _KERNEL * _KERNEL
    convolutions = linear(window, channels) + 2 * linear(channels * window, channels)
    projections = linear(channels * bins, hidden, bias=False) + linear(hidden, hidden) + linear(hidden, out)
    return convolutions + blocks + layer_norm(hidden) + projections
