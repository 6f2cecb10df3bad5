"""Which module of a checkpoint is in which number format, and that of the KV cache."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simserve.spec.dtypes import canonical_dtype, is_dtype
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.layers.weights import WeightFormat


class FormatRules(NamedTuple):
    """`weights` gives the format of a module by its whole name; None where it is not quantised."""

    weights: Callable[[str], WeightFormat | None]
    kv_dtype: str | None = None
    warnings: tuple[str, ...] = ()
    is_plain: bool = False
    """Nothing is quantised."""


PLAIN = FormatRules(lambda _: None, is_plain=True)


def format_rules(
    whole: Keys, text: Keys, beside: Mapping[str, Any] | None = None, *, replaced: bool = False
) -> FormatRules:
    """Rules of a configuration, which has its `quantization_config` at the top or with the language model, or
    `beside` it in a file of its own. `replaced`: the user states the format of the weights.

    Raises:
        ScenarioError: a method or a format that is not known.
    """
    del beside
    keys = whole.section("quantization_config") or text.section("quantization_config")
    if keys is None or replaced:
        return PLAIN
    dtype = _dtype(keys)
    experts = dtype == "mxfp4"
    fmt = WeightFormat.model_validate(dtype)
    keys.know(*keys.raw())
    return FormatRules(lambda name: None if name == "lm_head" or (experts and ".experts." not in name) else fmt)


def _dtype(keys: Keys) -> str:
    quantization = keys.raw()
    method = str(canonical_dtype(quantization.get("quant_method", quantization.get("quant_algo", ""))))
    method = method.lower().replace("-", "_")
    match method:
        case "fp8" | "fbgemm_fp8" | "mxfp4" | "nvfp4":
            dtype = method.removeprefix("fbgemm_")
        case "awq" | "gptq":
            dtype = f"int{quantization.get('bits', 4)}"
        case "modelopt":
            dtype = str(quantization.get("quant_algo", "fp8")).lower()
        case _:
            dtype = method
    if not is_dtype(dtype):
        raise keys.error("quant_method", f"quantization {dtype!r}: not modelled yet; state weight_dtype beside config")
    return dtype
