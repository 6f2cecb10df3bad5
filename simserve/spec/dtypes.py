"""Number formats of weights, activations and KV cache: our names, those of torch and of checkpoints, their sizes."""

_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "mxfp4": 0.5, "nvfp4": 0.5}
DTYPES = tuple(_BYTES)
"""All formats, by our names."""

_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
}

_SCALES = {
    "int4": (2 + 0.5) / 128,  # AWQ and GPTQ at their usual group of 128: an fp16 scale and a 4-bit zero point
    "mxfp4": 1 / 32,  # OCP Microscaling Formats 1.0: one e8m0 scale for 32 elements
    "nvfp4": 1 / 16,  # one e4m3 scale for 16 elements
}


def canonical_dtype(name: object) -> object:
    """Our name of a format that torch, vLLM or a checkpoint names otherwise; anything else as it is."""
    return _ALIASES.get(name.removeprefix("torch."), name) if isinstance(name, str) else name


def is_dtype(name: object) -> bool:
    """Whether this is one of the formats whose size is known."""
    return isinstance(name, str) and name in _BYTES


def bytes_per_element(dtype: str) -> float:
    """Bytes of one element of a format, scales not counted.

    Raises:
        KeyError: the format is not known.
    """
    return _BYTES[dtype]


def scale_bytes_per_element(dtype: str) -> float:
    """Bytes of scales and zero points per element; 0 where one serves a channel or more (< 0.1 %)."""
    return _SCALES.get(dtype, 0.0)
