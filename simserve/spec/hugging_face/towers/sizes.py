"""Parameters of the parts that towers are made of, and keys that no tower's size depends on."""

from simserve.spec.hugging_face.keys import Keys

HARMLESS = (
    *("model_type", "dtype", "torch_dtype", "tie_word_embeddings", "rope_parameters", "rope_scaling", "hidden_act"),
    *("hidden_activation", "activation_function", "activation_dropout", "projection_dropout", "layer_norm_eps"),
    *("max_length", "is_encoder_decoder", "initializer_factor"),
)
"""Beside the keys that are harmless everywhere: formats (vLLM loads a tower in that of the model), positions that are
computed, activations, of which the class says whether they have a gate.
"""


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """A linear layer, or a convolution with `inputs` elements in its window."""
    return inputs * outputs + outputs * bias


def layer_norm(size: int) -> int:
    """A norm with weight and bias."""
    return 2 * size


def sides(keys: Keys, *names: str, default: int | None = None) -> tuple[int, int]:
    """Height and width, which are one number where they are alike."""
    if not isinstance(keys.value(*names), list):
        side = keys.count(*names, default=default)
        return side, side
    found = keys.wholes(*names, least=1)
    if found is None or len(found) != 2:
        raise keys.error(names[0], "expected one number, or a list of height and width")
    return found[0], found[1]


def patches(keys: Keys, image: tuple[int, int], patch: tuple[int, int]) -> int:
    """Patches that an image is cut into, each with a position of its own.

    Raises:
        ScenarioError: a patch is larger than the image.
    """
    if patch[0] > image[0] or patch[1] > image[1]:
        raise keys.error("patch_size", f"{patch[0]} x {patch[1]} is larger than the image, {image[0]} x {image[1]}")
    return (image[0] // patch[0]) * (image[1] // patch[1])


def transformer_block(hidden: int, width: int, *, qkv_bias: bool = True) -> int:
    """A block of the usual vision transformer: attention of the hidden size, an MLP without a gate, two norms."""
    attention = 3 * linear(hidden, hidden, bias=qkv_bias) + linear(hidden, hidden)
    return attention + linear(hidden, width) + linear(width, hidden) + 2 * layer_norm(hidden)
