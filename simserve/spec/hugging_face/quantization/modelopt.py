"""ModelOpt (NVIDIA): one algorithm for all modules but those of a list, or one for each module that is named.

Keys: vLLM 0.33, quantization/modelopt.py. They stand in config.json, or inside `quantization` of hf_quant_config.json.
"""

from collections.abc import Callable
from functools import cache

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.formats import fp8_block, fp8_channel, fp8_tensor, mxfp8, nvfp4
from simserve.spec.hugging_face.quantization.kv_cache import of_modelopt
from simserve.spec.hugging_face.quantization.listed import Listed
from simserve.spec.hugging_face.quantization.modules import Module, group_of
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

_ALGORITHMS: dict[str, Callable[[int], WeightFormat]] = {
    "FP8": lambda _: fp8_tensor(),
    "FP8_PER_CHANNEL_PER_TOKEN": lambda _: fp8_channel(),
    "FP8_PB_WO": lambda _: fp8_block(128, 128),
    "NVFP4": nvfp4,
    "W4A16_NVFP4": lambda group: nvfp4(group, weight_only=True),
    "MXFP8": lambda _: mxfp8(),
}
"""Formats by ModelOpt's names of algorithms, from the size of a group, which NVFP4 alone reads."""
_MIXED = "MIXED_PRECISION"
_GROUP = 16


def modelopt(keys: Keys, text: Keys) -> FormatRules:
    """ModelOpt's section.

    Raises:
        ScenarioError: a key is missing or makes no sense, or vLLM does not serve it.
    """
    del text
    inner = keys.section("quantization") or keys
    algorithm = inner.text("quant_algo", default="").upper()
    if inner is keys:
        lists = listed(keys, "ignore", "exclude_modules", inside=True)
    else:
        lists = listed(inner, "exclude_modules", inside=True)
        required = [("group_size",), ("exclude_modules",)] if "NVFP4" in algorithm else []
        needed(inner, *required)
    plain_activations = _has_plain_activations(keys)
    cache = of_modelopt(keys, inner)
    keys.know("producer", "modelopt_quant_config")
    if algorithm == _MIXED:
        named, format_of = _mixed(inner)
        rules = all_but(lists, format_of)._replace(lists={**lists, "quantized_layers": named})
    else:
        weight_only = algorithm == "NVFP4" and plain_activations
        fmt = _format(inner, "W4A16_NVFP4" if weight_only else algorithm)
        rules = all_but(lists, linear(fmt, head=True))
    return rules._replace(kv_dtype=cache.dtype, warnings=cache.warnings)


def mxfp8_of_minimax(keys: Keys, text: Keys) -> FormatRules:
    """`quant_method: mxfp8`, which vLLM reads as ModelOpt's MXFP8.

    Raises:
        ScenarioError: a key makes no sense.
    """
    del text
    cache = of_modelopt(keys, keys)
    keys.know("activation_scheme", "fmt", "scale_fmt", "weight_block_size")
    rules = all_but(listed(keys, "ignored_layers", inside=True), linear(mxfp8(), head=True))
    return rules._replace(kv_dtype=cache.dtype, warnings=cache.warnings)


def _format(keys: Keys, algorithm: str) -> WeightFormat:
    if algorithm not in _ALGORITHMS:
        known = ", ".join([*_ALGORITHMS, _MIXED])
        raise refused(keys, "quant_algo", f"{algorithm or 'null'}: vLLM 0.33 serves {known}")
    return _cached(algorithm, keys.count("group_size", default=_GROUP, null=_GROUP))


@cache
def _cached(algorithm: str, group: int) -> WeightFormat:
    """A file may name tens of thousands of modules."""
    return _ALGORITHMS[algorithm](group)


def _has_plain_activations(keys: Keys) -> bool:
    """Whether every group of the section leaves activations as they are (vLLM then takes NVFP4 as weights alone)."""
    section = keys.section("config_groups")
    groups = list(section.raw().values()) if section is not None else []
    if section is not None:
        section.know(*section.raw())  # the weights' formats stand in quant_algo, and in quantized_layers
    return bool(groups) and all(isinstance(each, dict) and each.get("input_activations") is None for each in groups)


def _mixed(keys: Keys) -> tuple[Listed, FormatOf]:
    """Modules that are named, and their formats. Experts of a layer may be named together or each."""
    section = keys.section("quantized_layers")
    if section is None or not section.raw():
        raise refused(keys, "quantized_layers", "is missing, and vLLM 0.33 needs it for MIXED_PRECISION")
    formats: dict[str, WeightFormat] = {}
    groups: dict[str, WeightFormat] = {}
    for name in section.raw():
        one = section.section(name)
        if one is None:
            raise section.error(name, "expected a mapping, got null")
        one.know("awq_block_size", "has_zero_point", "pre_quant_scale")
        formats[name] = _format(one, one.text("quant_algo", default="").upper())
        groups.setdefault(group_of(name), formats[name])

    def format_of(module: Module) -> WeightFormat | None:
        by_name = (formats[name] for name in (*module.names, *module.group) if name in formats)
        by_group = (groups[name] for name in module.group if name in groups)
        return next(by_name, None) or next(by_group, None)

    return Listed(section.raw()), format_of
