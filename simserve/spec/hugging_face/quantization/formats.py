"""Number formats of weights as checkpoints store them, with the bytes of their scales.

Sizes: OCP Microscaling Formats 1.0 (one e8m0 scale for 32 elements), NVIDIA's NVFP4 (one e4m3 scale for 16), and the
tensors that vLLM 0.33 creates for each method (model_executor/layers/quantization).
"""

from simserve.spec.layers.weights import WeightFormat

_SCALE = 2
"""Bytes of the scale of a group of integers, in the activations' 16 bit."""
_FLOAT32 = 4

INTEGERS = {4: "int4", 8: "int8"}
"""Formats of whole numbers by their bits."""


def integers(bits: int, group: int, *, zeros: bool, table: bool = False, weight_only: bool = True) -> WeightFormat:
    """Whole numbers with a scale for each group of `group` inputs, or for a whole channel if that is not positive.
    `zeros`: each scale has a zero point of as many bits; `table`: each input says which group it belongs to.

    Raises:
        KeyError: bits other than 4 and 8.
    """
    beside = _SCALE + (bits / 8 if zeros else 0)
    return WeightFormat(
        dtype=INTEGERS[bits],  # type: ignore[arg-type]
        scale_bytes=beside / group if group > 0 else 0.0,
        output_bytes=0.0 if group > 0 else beside,
        input_bytes=_FLOAT32 if table else 0.0,
        weight_only=weight_only,
    )


def fp8_tensor(*, weight_only: bool = False) -> WeightFormat:
    """FP8 with one scale for a matrix."""
    return WeightFormat(dtype="fp8", weight_only=weight_only)


def fp8_channel(*, weight_only: bool = False) -> WeightFormat:
    """FP8 with one scale for each output."""
    return WeightFormat(dtype="fp8", output_bytes=_FLOAT32, weight_only=weight_only)


def fp8_block(rows: int, columns: int, *, scale: int = _FLOAT32, weight_only: bool = False) -> WeightFormat:
    """FP8 with one scale for each block; blocks that are cut at an edge are counted by their share (< 0.01 %)."""
    return WeightFormat(dtype="fp8", scale_bytes=scale / (rows * columns), weight_only=weight_only)


def mxfp8() -> WeightFormat:
    """FP8 with an e8m0 scale for 32 inputs."""
    return WeightFormat(dtype="fp8", scale_bytes=1 / 32)


def mxfp4() -> WeightFormat:
    """FP4 with an e8m0 scale for 32 inputs."""
    return WeightFormat(dtype="mxfp4")


def nvfp4(group: int = 16, *, weight_only: bool = False) -> WeightFormat:
    """FP4 with an e4m3 scale for a group of inputs."""
    return WeightFormat(dtype="nvfp4", scale_bytes=1 / group, weight_only=weight_only)
