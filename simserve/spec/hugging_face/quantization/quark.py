"""Quark (AMD): one scheme for all modules, others by name. Keys: vLLM 0.33, quantization/quark."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

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
_OF_A_SPEC = (
    *("ch_axis", "is_dynamic", "round_method", "scale_format", "scale_calculation_mode", "observer_cls", "qat_spec"),
    *("mx_element_dtype", "zero_point_type", "is_scale_quant", "calibration_cnt", "is_sparsity"),
)
"""Keys of how scales were found, which change no size."""
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
    weight, inputs = section.value("weight"), section.value("input_tensors")
    section.know("output_tensors", "bias", "target_device")
    if weight is None:
        return None
    specs = [_Spec.of(section, each) for each in (weight if isinstance(weight, list) else [weight])]
    found = _single(specs[0], weight_only=inputs is None) if len(specs) == 1 else _double(specs)
    if found is None:
        said = " under ".join(f"{each.dtype} {each.by} {each.group or ''}".strip() for each in specs)
        raise refused(section, "weight", f"{said}: fp8, int8, int4, mxfp8, mxfp4 and nvfp4 are modelled")
    return found


class _Spec(NamedTuple):
    """How one tensor is quantised: its format, which weights share a scale, and how many."""

    dtype: str
    by: str
    group: int
    block: list[int] | None
    e8m0: bool
    symmetric: bool

    @classmethod
    def of(cls, section: Keys, raw: object) -> "_Spec":
        """The specification that stands in a section.

        Raises:
            ScenarioError: it makes no sense, or has a key that is not known.
        """
        if not isinstance(raw, Mapping):
            raise section.error("weight", f"expected a mapping, got {shown(raw)}")
        keys = Keys(raw, section.model, f"{section.path}: weight")
        keys.know(*_OF_A_SPEC)
        found = cls(
            keys.text("dtype", default=""),
            keys.text("qscheme", default=""),
            keys.whole("group_size", default=0, null=0),
            keys.wholes("block_size"),
            keys.text("scale_type", default="") == "float8_e8m0fnu",
            keys.flag("symmetric", default=False) if "symmetric" in keys else False,
        )
        for _, key, value in keys.unread():
            raise keys.error(key, f"{shown(value)}: not known, so what it changes is not guessed")
        return found


def _single(spec: _Spec, *, weight_only: bool) -> WeightFormat | None:
    if spec.dtype == "int8" and spec.by in {"per_tensor", "per_channel"}:
        return integers(8, -1, zeros=False, weight_only=weight_only)
    if spec.dtype in {"int4", "uint4"} and spec.group and weight_only:
        return integers(4, spec.group, zeros=not spec.symmetric)
    if spec.by == "per_block" and spec.block == [_BLOCK, _BLOCK]:
        return fp8_block(_BLOCK, _BLOCK, scale=1 if spec.e8m0 else 4) if spec.dtype == "fp8_e4m3" else None
    known = {
        ("fp8_e4m3", "per_tensor", 0): fp8_tensor(weight_only=weight_only),
        ("fp8_e4m3", "per_channel", 0): fp8_channel(weight_only=weight_only),
        ("fp8_e4m3", "per_group", 32): mxfp8(),
        ("fp4", "per_group", 32): mxfp4(),
    }
    return known.get((spec.dtype, spec.by, spec.group))


def _double(specs: list[_Spec]) -> WeightFormat | None:
    """Scales that are quantised themselves: NVFP4, or int4 under fp8."""
    match [(each.dtype, each.by, each.group) for each in specs]:
        case [("fp4", "per_group", 16), ("fp8_e4m3", "per_tensor", 0)]:
            return nvfp4()
        case [("fp8_e4m3", "per_tensor", 0), ("int4", "per_channel", 0)]:
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
