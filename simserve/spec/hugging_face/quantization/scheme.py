"""One scheme of compressed-tensors: what its `weights` and `input_activations` make of a matrix.

Defaults: compressed-tensors 0.20, quantization/quant_args.py.
"""

from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.formats import (
    INTEGERS,
    fp8_block,
    fp8_channel,
    fp8_tensor,
    integers,
    mxfp4,
    mxfp8,
    nvfp4,
)
from simserve.spec.hugging_face.quantization.rules import refused
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.quantities import shown

_MX_GROUP, _NVFP4_GROUP = 32, 16


def scheme(keys: Keys) -> tuple[WeightFormat, list[str]]:
    """The format of a group's weights, and what is to be said of its activations.

    Raises:
        ScenarioError: vLLM does not serve it, or it makes no sense.
    """
    weights, inputs = keys.section("weights"), keys.section("input_activations")
    outputs = keys.section("output_activations")
    if weights is None:
        raise refused(keys, "weights", "is null: a group of activations alone is not served by vLLM 0.33")
    for each in (inputs, outputs):
        if each is not None:
            each.know(*each.raw())
    weights.know("observer", "observer_kwargs", "zp_dtype")
    weights.expect("dynamic", False, why="weights: vLLM 0.33 serves static scales alone")
    weights.expect("actorder", False, "weight", "static", why="is an order of activations that vLLM 0.33 refuses")
    bits, kind = weights.count("num_bits", default=8), weights.text("type", default="int").lower()
    if kind == "float":
        return _floats(weights, bits, weight_only=inputs is None), []
    if kind != "int" or bits not in INTEGERS:
        raise refused(weights, "num_bits", f"{bits} bits of {kind}: int with 4 and 8, float with 4 and 8 are modelled")
    fmt = _integers(weights, bits, weight_only=inputs is None)
    if inputs is None or fmt.dtype == "int8":
        return fmt, []
    return fmt, ["its activations are quantised (w4a8): GEMMs on its int4 weights are timed in 16 bit"]


def _strategy(weights: Keys) -> str:
    """Which weights share a scale; where the file does not say, by the size of a group."""
    group = weights.raw().get("group_size")
    usual = "tensor" if group is None else "channel" if group == -1 else "group"
    known = ("tensor", "channel", "group", "block", "tensor_group")
    return weights.choice("strategy", known, default=usual)


def _group(weights: Keys) -> int:
    """Weights of an output that share a scale; -1 is all."""
    if weights.value("group_size") in (None, -1):
        return -1
    return weights.count("group_size")


def _floats(weights: Keys, bits: int, *, weight_only: bool) -> WeightFormat:
    strategy, group = _strategy(weights), _group(weights)
    scale = weights.text("scale_dtype", default="")
    weights.expect("symmetric", True, why="floats: vLLM 0.33 serves symmetric ones alone")
    block = weights.value("block_structure")
    match bits, strategy, group:
        case 4, "tensor_group", 16:
            return nvfp4(_NVFP4_GROUP, weight_only=weight_only)
        case 4, "group", 32:
            return mxfp4()
        case 8, "group", 32 if scale.endswith("uint8"):
            return mxfp8()
        case 8, "tensor", _:
            return fp8_tensor(weight_only=weight_only)
        case 8, "channel", _:
            return fp8_channel(weight_only=weight_only)
        case 8, "block", _:
            return fp8_block(*_block(weights, block), weight_only=weight_only)
    raise _unknown(weights, f"{bits} bits of float by {strategy}, group {group}")


def _block(weights: Keys, block: object) -> tuple[int, int]:
    """Rows and columns of a block, also as the text `128x128` of old files."""
    sizes = block.split("x") if isinstance(block, str) else block
    whole = isinstance(sizes, list) and len(sizes) == 2 and all(str(each).isdigit() for each in sizes)
    if not whole or not isinstance(sizes, list) or not all(int(each) for each in sizes):
        raise weights.error("block_structure", f"expected two positive whole numbers, got {shown(block)}")
    return int(sizes[0]), int(sizes[1])


def _integers(weights: Keys, bits: int, *, weight_only: bool) -> WeightFormat:
    strategy, group = _strategy(weights), _group(weights)
    weights.know("scale_dtype", "block_structure")
    zeros = not weights.flag("symmetric", default=True)
    if zeros and not weight_only:
        raise refused(
            weights, "symmetric", "false: with quantised activations vLLM 0.33 serves symmetric weights alone"
        )
    match strategy:
        case "tensor" if bits == 8 and not weight_only:
            return WeightFormat(dtype="int8")
        case "channel":
            return integers(bits, -1, zeros=zeros, weight_only=weight_only)
        case "group" if group > 0:
            return integers(bits, group, zeros=zeros, weight_only=weight_only)
    raise _unknown(weights, f"{bits} bits of int by {strategy}, group {group}")


def _unknown(weights: Keys, what: str) -> ScenarioError:
    return refused(weights, "strategy", f"{what}: vLLM 0.33 has no scheme for it")
