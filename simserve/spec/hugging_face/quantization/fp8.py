"""FP8 as DeepSeek published it (`quant_method: fp8`), and its relative of Meta (`fbgemm_fp8`).

Keys: vLLM 0.33, quantization/fp8.py, fbgemm_fp8.py, and models/deepseek_v41/quant_config.py, which reads DeepSeek V4.
"""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.formats import fp8_block, fp8_channel, fp8_tensor, mxfp4, nvfp4
from simserve.spec.hugging_face.quantization.listed import Listed
from simserve.spec.hugging_face.quantization.modules import Module
from simserve.spec.hugging_face.quantization.rules import (
    FormatOf,
    FormatRules,
    all_but,
    linear,
    listed,
    needed,
    refused,
)
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.quantities import shown

_E8M0, _FLOAT32 = 1, 4
"""Bytes of a scale."""

_OF_MODELOPT = ("config_groups", "group_size", "kv_cache_quant_algo", "producer", "quant_algo", "quantized_layers")
"""Keys of ModelOpt that files of DeepSeek V4 have, and vLLM does not read there."""


def fp8(keys: Keys, text: Keys) -> FormatRules:
    """FP8 in blocks, or with one scale a matrix.

    Raises:
        ScenarioError: a key is missing or makes no sense.
    """
    _check_activations(keys)
    lists = listed(keys, "ignored_layers", "modules_to_not_convert")
    if is_deepseek_v4(text):
        return all_but(lists, _deepseek_v4(keys, text))
    keys.expect("store_dtype", "mxfp4", why="is no format that vLLM 0.33 stores experts in; it knows mxfp4")
    experts = mxfp4() if "store_dtype" in keys else None
    return all_but(lists, linear(_format(keys, _FLOAT32), experts=experts))


def is_deepseek_v4(text: Keys) -> bool:
    """Whether vLLM reads the section as DeepSeek V4's: by its `model_type`, not by its architecture."""
    return text.text("model_type", default="").startswith("deepseek_v4")


def _check_activations(keys: Keys) -> None:
    needed(keys, ("activation_scheme",))
    scheme = keys.choice("activation_scheme", ("dynamic", "static"), default="dynamic")
    if scheme == "static" and "weight_block_size" in keys:
        raise refused(keys, "activation_scheme", "static with weight_block_size: vLLM 0.33 takes blocks with dynamic")
    keys.expect("dequantize", False, why="turns weights back into 16 bit, which vLLM does not")
    keys.expect("fmt", "e4m3", "float8_e4m3fn", "float8_e4m3", why="is no FP8 that vLLM serves; e4m3 is")
    # It says whether a kernel rounds scales to powers of two. They stay float32, but for DeepSeek V4.
    keys.expect("scale_fmt", "ue8m0", "float32", "float", why="is not known")


def _format(keys: Keys, scale: int) -> WeightFormat:
    block = keys.wholes("weight_block_size", least=1)
    if block is None:
        return fp8_tensor()
    if len(block) != 2:
        raise keys.error("weight_block_size", f"expected two numbers, got {shown(block)}")
    return fp8_block(*block, scale=scale)


def _deepseek_v4(keys: Keys, text: Keys) -> FormatOf:
    """FP8 blocks with e8m0 scales and MXFP4 experts, or NVFP4 ones; with `expert_dtype: fp8` blocks with float32."""
    keys.know(*_OF_MODELOPT)
    experts = text.choice("expert_dtype", ("fp4", "fp8"), default="fp4")
    moe = keys.text("moe_quant_algo", default="").upper()
    kept = Listed(keys.texts("ignore"))
    if moe not in {"", "NVFP4"}:
        raise refused(keys, "moe_quant_algo", f"{moe} is not known; vLLM 0.33 knows NVFP4")
    if experts == "fp8":
        return linear(_format(keys, _FLOAT32))
    fmt, fp4 = _format(keys, _E8M0), nvfp4() if moe else mxfp4()

    def format_of(module: Module) -> WeightFormat | None:
        if module.is_head:
            return None
        if not module.is_expert:
            return fmt
        return mxfp4() if module in kept else fp4

    return format_of


def fbgemm_fp8(keys: Keys, text: Keys) -> FormatRules:
    """FP8 with one scale for each output; routed experts stay as they are.

    Raises:
        ScenarioError: a key is missing.
    """
    del text
    needed(keys, ("modules_to_not_convert",), ("activation_scale_ub",))
    keys.number("activation_scale_ub")
    fmt = fp8_channel()
    rules = all_but(
        listed(keys, "modules_to_not_convert"),
        lambda module: None if module.is_head or module.is_expert else fmt,
    )
    said = "quant_method fbgemm_fp8 is deprecated: vLLM 0.33 serves it with --allow-deprecated-quantization alone"
    return rules._replace(warnings=(said,))
