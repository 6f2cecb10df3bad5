"""Vision towers of Qwen: 2-VL, 2.5-VL, 3-VL and 3.5 (transformers 5.24, the vision model of each)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, transformer_block

_HARMLESS = ("num_heads",)
_WINDOWS = ("window_size", "fullatt_block_indexes", "tokens_per_second")
"""Which patches see each other, and how long a video frame is."""


def _pixels(keys: Keys, patch_size: int) -> int:
    """Elements of a patch. Old files spell two keys as the first model's code did."""
    patch = keys.count("patch_size", "spatial_patch_size", default=patch_size)
    return (
        patch * patch * keys.count("in_channels", "in_chans", default=3) * keys.count("temporal_patch_size", default=2)
    )


def _merged(keys: Keys, hidden: int) -> int:
    """Elements of the patches that are merged into one token."""
    return hidden * keys.count("spatial_merge_size", default=2) ** 2


def qwen2_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Qwen2-VL's, whose `hidden_size` is the decoder's and whose own is `embed_dim`."""
    del around
    keys.expect("hidden_size", hidden_size, why="is not the hidden size of the decoder")
    hidden = keys.count("embed_dim", default=1280)
    width = int(hidden * keys.factor("mlp_ratio", default=4))
    keys.know(*_HARMLESS)
    merged = _merged(keys, hidden)
    blocks = keys.count("depth", default=32) * transformer_block(hidden, width)
    merger = layer_norm(hidden) + linear(merged, merged) + linear(merged, hidden_size)
    return linear(_pixels(keys, 14), hidden, bias=False) + blocks + merger


def qwen2_5_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Qwen2.5-VL's and Qwen2.5-Omni's: an MLP with a gate, norms without bias."""
    del around
    keys.expect("out_hidden_size", hidden_size, why="is not the hidden size of the decoder")
    hidden, width = keys.count("hidden_size", default=3584), keys.count("intermediate_size", default=3420)
    keys.know(*_HARMLESS, *_WINDOWS)
    merged = _merged(keys, hidden)
    block = 4 * linear(hidden, hidden) + 2 * linear(hidden, width) + linear(width, hidden) + 2 * hidden
    merger = hidden + linear(merged, merged) + linear(merged, keys.count("out_hidden_size", default=3584))
    return linear(_pixels(keys, 14), hidden, bias=False) + keys.count("depth", default=32) * block + merger


def qwen3_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Qwen3-VL's, whose patches are merged once more for each layer of `deepstack_visual_indexes`."""
    return _qwen3(keys, around, hidden_size, len(_deepstack(keys, [8, 16, 24])))


def qwen3_5_vision(keys: Keys, around: Keys, hidden_size: int) -> int:
    """Parameters of Qwen3.5's: the same without that."""
    keys.expect("deepstack_visual_indexes", [], why="names layers, which this tower does not merge")
    return _qwen3(keys, around, hidden_size, 0)


def _deepstack(keys: Keys, default: list[int]) -> list[int]:
    found = keys.wholes("deepstack_visual_indexes")
    return default if found is None else found


def _qwen3(keys: Keys, around: Keys, hidden_size: int, deepstack: int) -> int:
    around.expect("language_model_only", False, why="leaves the tower out, which is not modelled: remove it")
    keys.expect("out_hidden_size", hidden_size, why="is not the hidden size of the decoder")
    hidden, width = keys.count("hidden_size", default=1152), keys.count("intermediate_size", default=4304)
    keys.know(*_HARMLESS)
    merged = _merged(keys, hidden)
    merger = linear(merged, merged) + linear(merged, keys.count("out_hidden_size", default=3584))
    positions = keys.count("num_position_embeddings", default=2304) * hidden
    blocks = keys.count("depth", default=27) * transformer_block(hidden, width)
    mergers = layer_norm(hidden) + merger + deepstack * (layer_norm(merged) + merger)
    return linear(_pixels(keys, 16), hidden) + positions + blocks + mergers
