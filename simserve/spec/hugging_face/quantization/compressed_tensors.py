"""Compressed-tensors (llm-compressor): groups of modules, each with a scheme of its own.

Keys: vLLM 0.33, quantization/compressed_tensors.
"""

import re
from typing import NamedTuple

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.kv_cache import of_compressed_tensors
from simserve.spec.hugging_face.quantization.listed import BadEntryError, Listed
from simserve.spec.hugging_face.quantization.modules import Module, module
from simserve.spec.hugging_face.quantization.rules import FormatRules, all_but, listed, refused
from simserve.spec.hugging_face.quantization.scheme import scheme
from simserve.spec.layers.weights import WeightFormat

_LAYOUTS = (
    *("dense", "pack-quantized", "float-quantized", "int-quantized", "naive-quantized", "nvfp4-pack-quantized"),
    *("mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision"),
)
"""How weights are packed, which does not change their bytes."""
_SPARSE = ("sparse-bitmask", "sparse-24-bitmask", "marlin-24")

_LINEAR = "columnparallellinear mergedcolumnparallellinear qkvparallellinear rowparallellinear replicatedlinear"
_EXPERTS = "routedexperts fusedmoe"
_HEAD, _EMBEDDING = "parallellmhead", "vocabparallelembedding"
"""vLLM's classes, of whose names a target may be a part."""


class _Group(NamedTuple):
    names: Listed
    classes: tuple[str, ...]
    format: WeightFormat

    def is_class(self, one: Module, of_class: str) -> bool:
        """Whether a target is the class of a module, or part of its name; `Linear` also means routed experts."""
        return any(each in of_class or (one.is_expert and each == "linear") for each in self.classes)


def compressed_tensors(keys: Keys, text: Keys) -> FormatRules:
    """Schemes by the names or the classes of modules.

    Raises:
        ScenarioError: a key makes no sense, or a scheme that vLLM does not serve or is not modelled.
    """
    _check_layout(keys)
    keys.know(
        "quantization_status",
        "global_compression_ratio",
        "version",
        "total_num_heads",
        "total_num_kv_heads",
        "provider",
    )
    groups, warnings = _groups(keys)
    if _find(groups, module("model.embed_tokens"), _EMBEDDING) is not None:
        raise refused(keys, "config_groups", "a group for the token embedding: quantised embeddings are not modelled")
    cache = of_compressed_tensors(keys, text)
    rules = all_but(listed(keys, "ignore"), lambda one: _find(groups, one, _class_of(one)))
    targets = {f"config_groups.{name}.targets": group.names for name, group in groups.items()}
    return rules._replace(
        lists={**rules.lists, **targets},
        kv_dtype=cache.dtype,
        warnings=(*warnings, *_of_transforms(keys), *cache.warnings),
    )


def experts_alone(keys: Keys, text: Keys) -> FormatRules:
    """The same, where vLLM reads the section as that of MXFP4 experts and leaves all other modules as they are.

    Raises:
        ScenarioError: as above.
    """
    rules = compressed_tensors(keys, text)
    return rules._replace(format_of=lambda one: rules.format_of(one) if one.is_expert else None)


def _class_of(one: Module) -> str:
    return _HEAD if one.is_head else _EXPERTS if one.is_expert else _LINEAR


def _find(groups: dict[str, _Group], one: Module, of_class: str) -> WeightFormat | None:
    """Format of the group that names a module, or else of one that names its class."""
    named = [group.format for group in groups.values() if one in group.names]
    named += [group.format for group in groups.values() if group.is_class(one, of_class)]
    return next(iter(named), None)


def _groups(keys: Keys) -> tuple[dict[str, _Group], list[str]]:
    section = keys.section("config_groups")
    found: dict[str, _Group] = {}
    warnings: list[str] = []
    for name in section.raw() if section is not None else ():
        one = section.section(name) if section is not None else None
        if one is None:
            continue
        targets = one.texts("targets")
        if len(targets) == 1 and targets[0].endswith("Attention"):
            one.know(*one.raw())  # it belongs to the KV cache, whose scheme says the same
            continue
        _check_layout(one)
        fmt, said = scheme(one)
        warnings += said
        classes = tuple(each.lower() for each in targets if "." not in each and not each.startswith("re:"))
        try:
            found[name] = _Group(Listed(each for each in targets if each.lower() not in _CLASSES), classes, fmt)
        except BadEntryError as error:
            raise one.error("targets", str(error)) from None
    return found, warnings


_CLASSES = {*_LINEAR.split(), *_EXPERTS.split(), _HEAD, _EMBEDDING, "linear", "embedding"}


def _check_layout(keys: Keys) -> None:
    sparse = keys.section("sparsity_config")
    layout = keys.text("format", default="dense")
    if layout in _SPARSE or (sparse is not None and sparse.raw().get("targets")):
        what = layout if layout in _SPARSE else "sparsity_config"
        raise refused(keys, "format", f"{what}: vLLM 0.33 serves no sparse weights any more")
    if sparse is not None:
        sparse.know(*sparse.raw())
    keys.choice("format", _LAYOUTS, default="dense")


def _of_transforms(keys: Keys) -> list[str]:
    section = keys.section("transform_config")
    if section is None or not section.raw():
        return []
    section.know(*section.raw())
    if not _ONLINE.search(str(section.raw())):
        return []
    return ["its transform_config rotates inputs of GEMMs: neither the time nor the bytes of that are counted"]


_ONLINE = re.compile(r"'location': '(input|output|q_attn|k_cache)'")
"""Where a rotation is a kernel of its own; at `weight_input` and `weight_output` it is in the weights already."""
