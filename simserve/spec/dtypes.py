"""Number formats of weights, activations and KV cache: their names here, the names checkpoints use, and their size."""

BYTES_PER_ELEMENT = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "mxfp4": 0.5,
    "nvfp4": 0.5,
}
"""Bytes of one element, without the scales that block formats keep beside them (see `scale_bytes_per_element`)."""

WEIGHT_DTYPES = tuple(BYTES_PER_ELEMENT)
KV_DTYPES = ("bf16", "fp16", "fp32", "fp8", "int8")

ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "awq": "int4",
    "gptq": "int4",
}
"""Names of torch, vLLM and checkpoints for the same formats."""

_SCALE_BYTES = {
    "int4": (2 + 0.5) / 128,  # AWQ and GPTQ at their usual group of 128: an fp16 scale and a 4-bit zero point
    "mxfp4": 1 / 32,  # OCP Microscaling 1.0: one e8m0 scale for 32 elements
    "nvfp4": 1 / 16,  # one e4m3 scale for 16 elements
}


def bytes_per_element(dtype: str) -> float:
    """Bytes of one element of a number format, scales not counted.

    Raises:
        KeyError: the format is not one of `BYTES_PER_ELEMENT`.
    """
    return BYTES_PER_ELEMENT[dtype]


def scale_bytes_per_element(dtype: str) -> float:
    """Bytes of scales and zero points per element of a block format; 0 where scales are per channel or per tensor, which is under 0.1 %."""
    return _SCALE_BYTES.get(dtype, 0.0)
