"""Vision towers of CLIP and SigLIP (transformers 5.24, CLIPVisionModel, SiglipVisionModel and Idefics3VisionModel)."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import layer_norm, linear, patches, sides, transformer_block

CLIP_LARGE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "image_size": 336,
    "patch_size": 14,
}
"""CLIP ViT-L/14 at 336 pixels."""
_CLIP = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224, "patch_size": 32}
_SIGLIP = {**_CLIP, "patch_size": 16}
_IDEFICS3 = {**_CLIP, "hidden_size": 1152, "patch_size": 32}


def _parts(keys: Keys, defaults: dict[str, int]) -> tuple[int, int, int, int]:
    """Hidden size, elements of a patch, positions, and parameters of all blocks."""
    hidden = keys.count("hidden_size", default=defaults["hidden_size"])
    width = keys.count("intermediate_size", default=defaults["intermediate_size"])
    image = sides(keys, "image_size", default=defaults["image_size"])
    patch = sides(keys, "patch_size", default=defaults["patch_size"])
    layers = keys.count("num_hidden_layers", default=defaults["num_hidden_layers"])
    keys.know(*_HARMLESS)
    pixels = keys.count("num_channels", default=3) * patch[0] * patch[1]
    return hidden, pixels, patches(keys, image, patch), layers * transformer_block(hidden, width)


def clip(keys: Keys, defaults: dict[str, int] | None = None) -> int:
    """Parameters of a CLIP tower, which has a token for the class."""
    hidden, pixels, positions, blocks = _parts(keys, defaults or _CLIP)
    return clip_of(hidden, pixels, positions, blocks)


def clip_of(hidden: int, pixels: int, positions: int, blocks: int) -> int:
    """The same of its parts."""
    return hidden + linear(pixels, hidden, bias=False) + (positions + 1) * hidden + blocks + 2 * layer_norm(hidden)


def clip_large() -> int:
    """Parameters of CLIP ViT-L/14 at 336 pixels."""
    return clip(Keys({}, "CLIP"), CLIP_LARGE)


def siglip(keys: Keys) -> int:
    """Parameters of a SigLIP tower, with the head that pools its tokens unless `vision_use_head` says no."""
    hidden, pixels, positions, blocks = _parts(keys, _SIGLIP)
    found = linear(pixels, hidden) + positions * hidden + blocks + layer_norm(hidden)
    if keys.flag("vision_use_head", default=True):
        width = keys.count("intermediate_size", default=_SIGLIP["intermediate_size"])
        found += (
            hidden + 4 * linear(hidden, hidden) + layer_norm(hidden) + linear(hidden, width) + linear(width, hidden)
        )
    return found


def idefics3(keys: Keys) -> int:
    """Parameters of the tower of Idefics 3 and SmolVLM: SigLIP without its head."""
    hidden, pixels, positions, blocks = _parts(keys, _IDEFICS3)
    keys.know("size", "max_image_size", "vision_use_head", "tie_word_embeddings", "use_base_siglip")
    return linear(pixels, hidden) + positions * hidden + blocks + layer_norm(hidden)


_HARMLESS = ("num_attention_heads", "projection_dim", "vocab_size", "num_image_tokens", "projector_hidden_act")
"""Heads share the hidden size; what follows the tower does not read the others, but where its own class says so."""
