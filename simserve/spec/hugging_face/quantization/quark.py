"""Quark (AMD): one scheme for all modules, others by name. Keys: vLLM 0.33, quantization/quark."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.formats import (
    fp8_block,
    fp8_channel,
    fp8_tensor,
    integers,
    mxfp4,
    mxfp8,
    nvfp4,
)
from simserve.spec.hugging_face.quantization.modules import Module
from simserve.spec.hugging_face.quantization.rules import FormatRules, all_but, listed, needed, refused
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.quantities import shown

_OF_THE_MAKER = ("algo_config", "softmax_quant_spec", "quant_mode", "version", "quark_version", "kv_cache_quant_config")
_BLOCK = 128


def quark(keys: Keys, text: Keys) -> FormatRules:
    """The scheme of all modules, with exceptions.

    Raises:
        ScenarioError: a key makes no sense, or a scheme that vLLM does not serve or is not modelled.
    """
    del text
    needed(keys, ("export",), ("global_quant_config",))
    if keys.value("layer_type_quant_config"):
        raise refused(keys, "layer_type_quant_config", "schemes by the class of a module are not modelled")
    usual = _scheme(keys, "global_quant_config")
    section = keys.section("layer_quant_config")
    others = {} if section is None else {name: _scheme(section, name) for name in section.raw()}
    keys.know(*_OF_THE_MAKER)

    def format_of(module: Module) -> WeightFormat | None:
        if module.is_head:
            return None
        names = (*module.names, *module.group)
        return next((fmt for entry, fmt in others.items() if any(_means(entry, name) for name in names)), usual)

    return all_but(listed(keys, "exclude"), format_of)._replace(warnings=_of_kv_cache(keys))


def _means(entry: str, name: str) -> bool:
    """Whether an entry names a module: with wildcards, or as a name that it is in."""
    return fnmatchcase(name, entry) if "*" in entry else name in entry


def _scheme(keys: Keys, name: str) -> WeightFormat | None:
    """Format of the weights of one scheme; None where they are not quantised."""
    section = keys.section(name)
    if section is None:
        return None
    section.know(*section.raw())
    weight, inputs = section.raw().get("weight"), section.raw().get("input_tensors")
    if weight is None:
        return None
    specs: list[Mapping[str, Any]] = weight if isinstance(weight, list) else [weight]
    if not specs or not all(isinstance(each, Mapping) for each in specs):
        raise section.error("weight", f"expected a mapping, got {shown(weight)}")
    found = _single(specs[0], weight_only=inputs is None) if len(specs) == 1 else _double(specs)
    if found is None:
        said = " over ".join(
            f"{each.get('dtype')} {each.get('qscheme')} {each.get('group_size') or ''}" for each in specs
        )
        raise refused(section, "weight", f"{said.strip()}: fp8, int8, int4, mxfp8, mxfp4 and nvfp4 are modelled")
    return found


def _single(spec: Mapping[str, Any], *, weight_only: bool) -> WeightFormat | None:
    dtype, by, group = spec.get("dtype"), spec.get("qscheme"), spec.get("group_size")
    if dtype == "int8" and by in {"per_tensor", "per_channel"}:
        return integers(8, -1, zeros=False, weight_only=weight_only)
    if dtype in {"int4", "uint4"} and isinstance(group, int) and group > 0 and weight_only:
        return integers(4, group, zeros=spec.get("symmetric") is not True)
    if by == "per_block" and spec.get("block_size") == [_BLOCK, _BLOCK]:
        scale = 1 if spec.get("scale_type") == "float8_e8m0fnu" else 4
        return fp8_block(_BLOCK, _BLOCK, scale=scale) if dtype == "fp8_e4m3" else None
    known = {
        ("fp8_e4m3", "per_tensor", None): fp8_tensor(weight_only=weight_only),
        ("fp8_e4m3", "per_channel", None): fp8_channel(weight_only=weight_only),
        ("fp8_e4m3", "per_group", 32): mxfp8(),
        ("fp4", "per_group", 32): mxfp4(),
    }
    return known.get((str(dtype), str(by), group))


def _double(specs: list[Mapping[str, Any]]) -> WeightFormat | None:
    """Scales that are quantised themselves: NVFP4, or int4 under fp8."""
    match [(each.get("dtype"), each.get("qscheme")) for each in specs]:
        case [("fp4", "per_group"), ("fp8_e4m3", "per_tensor")] if specs[0].get("group_size") == 16:
            return nvfp4()
        case [("fp8_e4m3", "per_tensor"), ("int4", "per_channel")]:
            return integers(4, -1, zeros=False, weight_only=False)
    return None


def _of_kv_cache(keys: Keys) -> tuple[str, ...]:
    """What vLLM does with a KV cache that the file quantises: nothing, unless told to (attention/attention.py)."""
    export = keys.section("export")
    assert export is not None
    export.know(*export.raw())
    if not export.raw().get("kv_cache_group"):
        return ()
    said = "the checkpoint has scales for an fp8 KV cache (kv_cache_group), which vLLM 0.33 uses only with"
    return (f"{said} --kv-cache-dtype fp8: state `kv_dtype: fp8` if it is served so",)
