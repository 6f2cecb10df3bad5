"""The vision tower of Qwen3-VL and Qwen3.5 (transformers 5.24, Qwen3VLVisionModel and Qwen3_5VisionModel)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear
from simserve.spec.model import TowerSpec


def merged_vision(whole: Keys, names: str) -> list[TowerSpec]:
    """A vision transformer whose patches are merged by fours, and once more for each layer of `deepstack_visual_indexes`;
    none where the file has no `vision_config`.
    """
    whole.expect("language_model_only", False, why="leaves the tower out, which is not modelled: remove it")
    keys = whole.section("vision_config")
    if keys is None:
        return []
    hidden, width = keys.count("hidden_size", default=1152), keys.count("intermediate_size", default=4304)
    patch = keys.count("patch_size", default=16)
    pixels = patch * patch * keys.count("in_channels", default=3) * keys.count("temporal_patch_size", default=2)
    depth, out = keys.count("depth", default=27), keys.count("out_hidden_size", default=3584)
    merged = hidden * keys.count("spatial_merge_size", default=2) ** 2
    keys.know("num_heads", *_HARMLESS)
    block = 2 * layer_norm(hidden) + linear(hidden, 3 * hidden) + linear(hidden, hidden)
    block += linear(hidden, width) + linear(width, hidden)
    merger = linear(merged, merged) + linear(merged, out)
    parameters = linear(pixels, hidden) + keys.count("num_position_embeddings", default=2304) * hidden + depth * block
    parameters += layer_norm(hidden) + merger
    parameters += len(keys.wholes("deepstack_visual_indexes") or []) * (layer_norm(merged) + merger)
    return [TowerSpec(name=names, num_parameters=parameters)]


_HARMLESS = ("hidden_act", "initializer_range", "model_type", "dtype", "torch_dtype")
